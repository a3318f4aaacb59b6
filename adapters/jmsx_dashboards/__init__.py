"""Grafana's boards, Prometheus' rules and the runbooks of jmsx; made for a place, and drawn without Grafana."""

from jmsx_dashboards.files import files, write
from jmsx_dashboards.model import Links, Settings

__all__ = ["Links", "Settings", "files", "write"]
