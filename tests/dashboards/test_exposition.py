"""The `/metrics` endpoint: what it shows is the catalogue, and its port is given back."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jmsx_prometheus import PrometheusObserver, serve
from jmsx_prometheus.catalogue import BY_NAME, Kind
from tests.dashboards.stories import IdleLog, lifetime, stand_still, working_hours
from tests.dashboards.tools import promtool


@pytest.fixture(name="text", scope="module")
def scraped() -> str:
    """One scrape after everything has happened once."""
    observer = PrometheusObserver(clock=stand_still, log=IdleLog())
    for event, source in [*lifetime()][:-1]:  # the last one ends the connection
        observer.observe(event, source)
    for event in working_hours():
        observer.observe(event, source)
    observer.note_paused("queue://orders", "ship", paused=True)
    with serve(observer, 0) as endpoint:
        return _fetch(endpoint.url)


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - our own endpoint
        return str(response.read().decode())


def test_what_is_exported_is_the_catalogue(text: str) -> None:
    """Same names, types, help and labels; each row has at least one series."""
    families = {_full(family.name): family for family in text_string_to_metric_families(text)}
    assert families.keys() == BY_NAME.keys()
    for name, family in families.items():
        row = BY_NAME[name]
        assert (family.type, family.documentation) == (row.kind.value, row.help)
        assert family.samples, f"nothing feeds {name}"
        labels = {frozenset(sample.labels.keys() - {"le"}) for sample in family.samples}
        assert labels == {frozenset(row.labels)}


def _full(name: str) -> str:
    """The parser leaves `_total` out of a counter's name."""
    counter = BY_NAME.get(f"{name}_total")
    return f"{name}_total" if counter is not None and counter.kind is Kind.COUNTER else name


def test_promtool_finds_nothing_to_mend(text: str) -> None:
    """Prometheus' own linter accepts names, help and types."""
    checked = promtool("check", "metrics", given=text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_promtool_would_find_something() -> None:
    """The linter that found nothing is awake."""
    assert promtool("check", "metrics", given="# TYPE a counter\na 1\n").returncode != 0


def test_closed_endpoint_answers_no_more() -> None:
    """The port is free again, and closing twice is no error."""
    endpoint = serve(PrometheusObserver(), 0)
    assert "jmsx_build_info" in _fetch(endpoint.url)
    endpoint.close()
    endpoint.close()
    with pytest.raises(urllib.error.URLError):
        _fetch(endpoint.url)
    serve(PrometheusObserver(), endpoint.port).close()


def test_taken_port_is_an_error() -> None:
    """Two processes that want the same port are told so."""
    with serve(PrometheusObserver(), 0) as endpoint, pytest.raises(OSError, match="in use"):
        serve(PrometheusObserver(), endpoint.port)
