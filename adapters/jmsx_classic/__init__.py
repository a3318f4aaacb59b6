"""The adapter for ActiveMQ Classic: how its STOMP behaves, and how jmsx copes with it."""

from jmsx_classic.dialect import DIALECT

__all__ = ["DIALECT"]
