"""Read segments without any of the code under test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def segments(directory: Path, suffix: str = ".jsonl") -> list[Path]:
    """List the files with `suffix` below `directory`, by name."""
    return sorted(directory.rglob(f"*{suffix}"), key=lambda path: path.name)


def lines(directory: Path, writer: str | None = None) -> list[dict[str, Any]]:
    """Read every line of the closed segments (of one writer), in order of `seq` as written."""
    found = [
        json.loads(line)
        for path in segments(directory)
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [line for line in found if writer in (None, line["writer"])]


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Keep the lines of one kind."""
    return [line for line in found if line["kind"] == kind]
