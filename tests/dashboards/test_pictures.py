"""What is asked for the boards, and how answers become rows, bars and words; Prometheus itself is in test_live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from jmsx.errors import ConfigurationError
from jmsx_dashboards.alerts import ALERTS, alerts
from jmsx_dashboards.asking import Series, Span, single, table, worded
from jmsx_dashboards.boards import BOARDS
from jmsx_dashboards.cli import app
from jmsx_dashboards.model import Budget, Links, Settings, read_budgets, scaled
from jmsx_dashboards.recordings import BUDGET, recordings
from jmsx_dashboards.texts import rules
from tests.dashboards.live import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx_dashboards.model import Board, Panel

_SPAN = Span(0.0, 3600.0)


def test_variables_are_replaced() -> None:
    """All jobs, also none; a window of four scrapes at least; the whole span."""
    asked = worded(
        'sum(rate(x{job=~"$job",y=~"$job|"}[$__rate_interval])) / increase(z[$__range])', _SPAN
    )
    assert asked == 'sum(rate(x{job=~".+",y=~".*"}[60s])) / increase(z[3600s])'


def test_a_table_has_one_row_for_each_set_of_labels() -> None:
    """Two queries meet in a row; the greatest comes first, and columns stand as the panel says."""
    panel = next(one for board in BOARDS for one in board.panels if one.title == "Failed messages")
    cause = {"destination": "queue://orders", "reason": "rejected"}
    other = {"destination": "queue://ledger", "reason": "expired"}
    answers = [
        [Series(cause, "", [(1.0, 2.0)]), Series(other, "", [(1.0, 7.0)])],
        [Series(cause, "", [(1.0, 5000.0)])],
    ]
    columns, rows = table(panel, answers)
    assert columns[:3] == ["destination", "reason", "error_type"]
    assert rows == [other | {"count": 7.0}, cause | {"count": 2.0, "last seen": 5000.0}]


def test_cumulated_buckets_become_single_ones() -> None:
    """Prometheus counts what is at most a bound, a reader what is between two."""
    series = [
        Series({"le": le}, le, [(0.0, n)]) for le, n in (("+Inf", 9.0), ("2.0", 7.0), ("1.0", 4.0))
    ]
    assert single(series) == [
        ("≤ 1.0", 4.0),
        ("≤ 2.0", 3.0),
        ("≤ +Inf", 2.0),
    ]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.25, "s", "250 ms"),
        (5400.0, "s", "1.5 h"),
        (0.0, "s", "0 s"),
        (0.123, "percentunit", "12.3 %"),
        (-99.0, "percentunit", "-9,900 %"),
        (12345.0, "short", "12,345"),
        (7.0, "mps", "7 msg/s"),
    ],
)
def test_numbers_are_told_for_readers(value: float, unit: str, text: str) -> None:
    """With the unit of the panel."""
    from jmsx_dashboards.pictures import told  # noqa: PLC0415 - only tests of pictures load Matplotlib

    assert told(value, unit) == text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since", "tomorrow"], "--since 'tomorrow' is no time"),
        (["--until", "tomorrow"], "--until 'tomorrow' is no time"),
        (["--since", "1h", "--until", "2h"], "--since 1h is not before the end"),
        (["--board", "nothing"], "there is no board"),
        (["--prometheus", "localhost"], "--prometheus is a URL"),
        (["--prometheus", f"http://127.0.0.1:{free_port()}"], "does not answer"),
    ],
)
def test_what_cannot_be_drawn_is_told(arguments: list[str], words: str, tmp_path: Path) -> None:
    """In a sentence of jmsx, which says what is wrong."""
    done = CliRunner().invoke(app, ["render", str(tmp_path), *arguments])
    assert isinstance(done.exception, ConfigurationError)
    assert words in str(done.exception)


def test_a_destination_has_its_own_budget(tmp_path: Path) -> None:
    """Ten times the dead letters, and five minutes instead of 30 s, for one queue; the others keep the default."""
    file = tmp_path / "budgets.toml"
    file.write_text('["queue://batch.night"]\ndead_letters = 0.01\nseconds = 300\n')
    settings = read_budgets(file)
    assert settings.of_destination == {
        "queue://batch.night": Budget(dead_letters=0.01, seconds=300.0)
    }
    exprs = {alert.name: alert.expr for alert in alerts(settings)}
    dead = exprs["JmsxDeadLetterBudgetFastBurn"]
    assert '{destination!~"queue://batch[.]night"} > 14.4 * 0.001' in dead
    assert '{destination="queue://batch.night"} > 14.4 * 0.01' in dead
    assert (
        'over_300s:ratio_rate5m{destination="queue://batch.night"}'
        in exprs["JmsxLatencyBudgetFastBurn"]
    )
    (allowed,) = [one.expr for one in recordings(settings) if one.record == BUDGET]
    assert '(jmsx_consumer_info{destination="queue://batch.night"}) * 0.01 or ' in allowed
    assert allowed.endswith("(jmsx_consumer_info) * 0.001")
    assert {one.record for one in recordings(settings)} >= {
        f"job_destination:jmsx_end_to_end_latency_over_{seconds}s:ratio_rate1h"
        for seconds in (30, 300)
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[default]\ndead_letters = 2", "is a share"),
        ("[default]\nseconds = 31", "bound of the latency's histogram"),
        ("[default]\nlate = true", "are numbers"),
        ("[default]\nspeed = 1", "is no table of"),
        ("[", "cannot be read"),
    ],
)
def test_a_wrong_budget_is_told(text: str, words: str, tmp_path: Path) -> None:
    """By what is wrong with it."""
    file = tmp_path / "budgets.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        read_budgets(file)


def test_rules_can_be_hurried() -> None:
    """Windows and ages are divided by the timescale, and no other number is."""
    known = {alert.name: alert for alert in ALERTS}
    old = known["JmsxOldestUnsettledTooOld"]
    assert "> 10 unless" in scaled(old.expr, old.seconds, 60.0)
    burst = scaled(known["JmsxConnectionFlapping"].expr, (), 60.0)
    assert "[15000ms]" in burst
    assert "> 6" in burst
    sending = known["JmsxSendFailing"]
    assert "jmsx_start_timestamp_seconds < 10)" in scaled(sending.expr, sending.seconds, 60.0)
    assert alerts(Settings(timescale=60.0)) == ALERTS
    waits = rules(Links(), Settings(timescale=60.0))
    gone = waits[waits.index("alert: JmsxInstanceGone") :]
    assert gone[gone.index("for: ") :].startswith("for: 10000ms")  # a machine does not hurry
    down = waits[waits.index("alert: JmsxConnectionDown") :]
    assert down[down.index("for: ") :].startswith("for: 2000ms")


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_nothing_of_a_picture_is_cut_off(board: Board, tmp_path: Path) -> None:
    """Of 17.5 msg/s the edge left 7.5: labels of great numbers and wide tables keep away from it."""
    # Matplotlib takes half a second to load, which each worker of a run would spend that only collects this file.
    from matplotlib.image import imread  # noqa: PLC0415 - only tests of pictures load Matplotlib

    from jmsx_dashboards.pictures import write_picture  # noqa: PLC0415 - only tests of pictures load Matplotlib

    points = [(0.0, 175_000.0), (3600.0, 1_234_567.0)]
    labels = {"destination": "queue://orders.of.the.east", "instance": "10.0.0.1:9000", "le": "2.0"}

    def answer(panel: Panel) -> list[list[Series]]:
        told = dict.fromkeys(panel.columns, "a word or two") | labels
        return [[Series(told, "a", points)] for _ in panel.queries]

    answers = {one.title: answer(one) for one in board.panels}
    path = tmp_path / "board.png"
    write_picture(path, board, answers, _SPAN)
    pixels = imread(path)
    assert pixels.shape[1] == 1800
    for edge in (pixels[:, :3], pixels[:, -3:], pixels[-3:], pixels[:3]):
        assert (edge == 1.0).all()
