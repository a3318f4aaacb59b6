"""
Idempotency stores: what was done is not done again (`@app.consumer(..., dedupe=store)`).

A message that comes again after it was done is acknowledged without its handler, and counted as a `duplicate`. What was
done is known for as long as, and to whom, the store says: a `MemoryStore` to this process, an `SqliteStore` to all
processes of the host, a `DatabaseStore` to all that use the database, in one transaction with what the handler writes.
"""

from jmsx.stores.database_store import DatabaseStore
from jmsx.stores.idempotency import IdempotencyStore
from jmsx.stores.memory_store import MemoryStore
from jmsx.stores.sqlite_store import SqliteStore

__all__ = ["DatabaseStore", "IdempotencyStore", "MemoryStore", "SqliteStore"]
