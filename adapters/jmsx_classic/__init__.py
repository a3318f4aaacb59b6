"""ActiveMQ Classic: what its STOMP does, and how to live with it."""

from jmsx_classic.dialect import DIALECT

__all__ = ["DIALECT"]
