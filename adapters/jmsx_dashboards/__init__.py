"""Grafana's boards, Prometheus' rules and the runbooks of jmsx; made for a place, and drawn without Grafana."""
