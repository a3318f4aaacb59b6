"""Pages in Chromium, where one is installed: how wide they are is what no reader of HTML can tell."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

#: Writes into the title what scrolls sideways: the whole page, or something in it.
_MEASURE: Final = """<script>addEventListener("load", () => {
const scrolls = (one) => one === document.documentElement || /auto|scroll/.test(getComputedStyle(one).overflowX);
const wide = [...document.querySelectorAll("*")].filter(
(one) => scrolls(one) && one.scrollWidth > one.clientWidth + 1);
const told = wide.map((one) => `${one.textContent.slice(0, 60)}: ${one.scrollWidth} > ${one.clientWidth}`);
document.title = "measured" + JSON.stringify(told)});</script>"""


def too_wide(page: str, width: int, folder: Path) -> list[str]:
    """What scrolls sideways in a window of so many pixels, each with its first words."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no Chromium is installed: CI's machine has none (some 300 MB)")
    measured = folder / "measured.html"
    measured.write_text(page.replace("</head>", f"{_MEASURE}</head>", 1))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
    options += [f"--user-data-dir={folder / 'browser'}", "--dump-dom", measured.as_uri()]
    done = subprocess.run(
        [browser, *options], capture_output=True, text=True, check=True, timeout=120
    )
    title = re.search(r"<title>measured(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None, done.stderr
    told: list[str] = json.loads(unescape(title[1]))
    return told
