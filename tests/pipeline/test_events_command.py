"""`jmsx events validate`: what a report would put aside, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from jmsx.cli.commands import app
from tests.pipeline.lines import segments
from tests.pipeline.simulator import Shop

if TYPE_CHECKING:
    from pathlib import Path


def test_a_log_is_valid_until_a_line_of_it_is_not(tmp_path: Path) -> None:
    """Each line that is put aside is named with its number and why, and each file that is not read."""
    shop = Shop(tmp_path, seed=1)
    shop.trade(20)
    shop.close()
    sound = CliRunner().invoke(app, ["events", "validate", str(tmp_path)])
    assert (sound.exit_code, sound.stdout) == (0, "nothing is wrong\n")

    segment = segments(tmp_path)[0]
    lines = segment.read_bytes().splitlines(keepends=True)
    lines.insert(1, b'{"v":1,"kind":"nonsense"}\n')
    segment.write_bytes(b"".join(lines))
    (tmp_path / "more.jsonl.gz").write_bytes(b"?")
    spoilt = CliRunner().invoke(app, ["events", "validate", str(tmp_path)])

    told = spoilt.stdout.splitlines()
    assert spoilt.exit_code == 1
    assert len(told) == 2
    assert told[0].startswith("more.jsonl.gz: compressed")
    assert told[1].startswith(f"{segment.relative_to(tmp_path)}:2: ")
