"""
For tests of jmsx, and of applications that use it: a broker in memory, the same behind a real socket, and a clock.

`FakeBroker` needs no thread and no time; `FakeBrokerServer` is for code that opens its own connections. Both take the
profile "classic" or "artemis", or one that is made in `jmsx.testing.profiles`.
"""

from jmsx.testing.clock import FakeClock
from jmsx.testing.fake_broker import FakeBroker
from jmsx.testing.server import FakeBrokerServer

__all__ = ["FakeBroker", "FakeBrokerServer", "FakeClock"]
