"""The same on brokers in containers."""
