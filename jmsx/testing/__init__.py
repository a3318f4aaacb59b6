"""
For tests of applications that use jmsx, and of jmsx itself.

`harness(app)` runs an application against a broker in memory, in virtual time. `FakeBroker` is that broker, with no
thread and no time of its own; `FakeBrokerServer` has it behind a real socket, for code that opens its own connections.
All take the profile "classic" or "artemis", or one that is made in `jmsx.testing.profiles`.
"""

from jmsx.testing.fake_broker import FakeBroker
from jmsx.testing.harness import DeadLetter, HandlerCall, HandlerRecord, Harness, harness
from jmsx.testing.server import FakeBrokerServer
from jmsx.testing.world import BlockedError

__all__ = [
    "BlockedError",
    "DeadLetter",
    "FakeBroker",
    "FakeBrokerServer",
    "HandlerCall",
    "HandlerRecord",
    "Harness",
    "harness",
]
