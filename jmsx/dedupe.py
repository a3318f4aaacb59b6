"""The old name of `jmsx.stores`, for programs that were written with it; new ones import from `jmsx`."""

from jmsx.stores import DatabaseStore, IdempotencyStore, MemoryStore, SqliteStore

__all__ = ["DatabaseStore", "IdempotencyStore", "MemoryStore", "SqliteStore"]
