"""OpenTelemetry for an `App`: `middleware=[tracing()]`."""

from jmsx.plugins import needing as _needing

with _needing("jmsx_otel"):
    from jmsx_otel.spans import tracing

__all__ = ["tracing"]
