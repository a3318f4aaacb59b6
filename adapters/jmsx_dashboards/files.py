"""The files that `jmsx dashboards export` writes, with a small Docker Compose stack to look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.files import appearing
from jmsx_dashboards import texts
from jmsx_dashboards.alerts import ALERTS
from jmsx_dashboards.grafana import boards_json
from jmsx_dashboards.model import Links, Settings

if TYPE_CHECKING:
    from pathlib import Path


def files(links: Links, settings: Settings) -> dict[str, str]:
    """Return all files: text by path."""
    return {
        **{f"grafana/{uid}.json": text for uid, text in boards_json(links).items()},
        f"prometheus/{texts.RULES_FILE}": texts.rules(links, settings),
        "prometheus/metrics.md": texts.metrics_table(),
        **{f"runbooks/{alert.name}.md": texts.runbook(alert) for alert in ALERTS},
        "runbooks/Causes.md": texts.causes(),
        "runbooks/Reading.md": texts.reading(),
        **_STACK,
    }


def write(folder: Path, links: Links, settings: Settings) -> list[Path]:
    """Write all files below `folder`, which is made if need be; returns their paths. Raises OSError."""
    written = []
    for path, text in files(links, settings).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with appearing(file) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
        written.append(file)
    return written


_STACK: Final = {
    "provisioning/datasources/prometheus.yml": """\
apiVersion: 1
datasources:
  - name: Prometheus
    type: prometheus
    access: proxy
    url: http://prometheus:9090
    isDefault: true
    jsonData: {timeInterval: 15s}
""",
    "provisioning/dashboards/jmsx.yml": """\
apiVersion: 1
providers:
  - name: jmsx
    type: file
    folder: jmsx
    options: {path: /var/lib/grafana/dashboards}
""",
    "prometheus/prometheus.yml": f"""\
global:
  scrape_interval: 15s
  evaluation_interval: 15s
rule_files: [/etc/prometheus/{texts.RULES_FILE}]
scrape_configs:
  - job_name: shop
    static_configs: [{{targets: ["app:9000"]}}]
""",
    "compose.yml": """\
# A broker, an application, Prometheus and Grafana: `docker compose up`, then http://localhost:3000/d/jmsx-overview.
services:
  broker:
    image: apache/activemq-classic:6.1.8
    ports: ["61613:61613", "8161:8161"]
  app:
    image: python:3.12-slim
    working_dir: /app
    # Put an `app.py` with your `app` beside this file.
    command: sh -c "pip install --quiet 'jmsx[cli,prometheus,eventlog]' && jmsx run app:app --health 0.0.0.0:9000"
    environment: {JMSX_BROKER_URL: "stomp://broker:61613"}
    volumes: ["./app.py:/app/app.py:ro"]
    depends_on: [broker]
  prometheus:
    image: prom/prometheus:v3.1.0
    volumes: ["./prometheus:/etc/prometheus:ro"]
    ports: ["9090:9090"]
  grafana:
    image: grafana/grafana:12.3.0
    environment: {GF_AUTH_ANONYMOUS_ENABLED: "true"}
    volumes:
      - ./provisioning:/etc/grafana/provisioning:ro
      - ./grafana:/var/lib/grafana/dashboards:ro
    ports: ["3000:3000"]
""",
}
