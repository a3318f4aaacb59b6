"""
Idempotency stores: a message that was handled is not handled again (`@app.consumer(..., dedupe=store)`).

If a handled message is delivered again, it is acknowledged without calling the handler, and counted as a `duplicate`.
The stores differ in which processes share the knowledge, and for how long: a `MemoryStore` serves this process, an
`SqliteStore` all processes of the host, and a `DatabaseStore` all processes that use the database, where it is written
in one transaction with the handler's own work.
"""

from jmsx.stores.database_store import DatabaseStore
from jmsx.stores.idempotency import IdempotencyStore
from jmsx.stores.memory_store import MemoryStore
from jmsx.stores.sqlite_store import SqliteStore

__all__ = ["DatabaseStore", "IdempotencyStore", "MemoryStore", "SqliteStore"]
