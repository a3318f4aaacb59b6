"""ActiveMQ Artemis: what its STOMP does, and how to live with it."""

from jmsx_artemis.dialect import DIALECT

__all__ = ["DIALECT"]
