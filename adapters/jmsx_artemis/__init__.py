"""The adapter for ActiveMQ Artemis: how its STOMP behaves, and how jmsx copes with it."""

from jmsx_artemis.dialect import DIALECT

__all__ = ["DIALECT"]
