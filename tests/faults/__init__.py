"""The fault bench: what goes wrong between a client and its broker, done on purpose, and every message counted."""
