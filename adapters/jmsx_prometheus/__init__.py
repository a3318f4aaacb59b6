"""Events as Prometheus metrics: an observer counts events, and an endpoint exposes the metrics."""

from jmsx.plugins import needing as _needing

with _needing("jmsx_prometheus"):
    from jmsx_prometheus.catalogue import METRICS, Kind, Metric
    from jmsx_prometheus.exposition import Endpoint, serve
    from jmsx_prometheus.observer import PrometheusObserver

__all__ = ["METRICS", "Endpoint", "Kind", "Metric", "PrometheusObserver", "serve"]
