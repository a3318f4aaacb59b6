"""The program of the page on Django, in a project, with the real one."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jmsx import App

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker

PAGE = Path(__file__).parents[2] / "examples" / "django" / "README.md"

SETTINGS = """
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
"""

MODELS = """
from django.db import models


class Order(models.Model):
    shipped = models.BooleanField(default=False)
"""


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_page(broker: Broker, tmp_path: Path, *, asynchronous: bool) -> None:
    """An order is shipped in Django's database; also by a handler that is `async def`."""
    [program] = re.findall(
        r"^```text\n(# shop/messages\.py\n.*?)^```",
        PAGE.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    queue = f"queue://orders.django.{asynchronous}"
    program = program.replace("queue://orders", queue)
    if asynchronous:
        program = program.replace("def ship", "async def ship").replace(".update(", ".aupdate(")
        program = program.replace("    Order.objects", "    await Order.objects")
    folder = tmp_path / "shop"
    folder.mkdir()
    for name, text in {"settings": SETTINGS, "models": MODELS, "messages": program}.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    (folder / "__init__.py").touch()
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute("CREATE TABLE shop_order (id INTEGER PRIMARY KEY, shipped BOOL NOT NULL)")
        db.execute("INSERT INTO shop_order VALUES (7, FALSE), (8, FALSE)")
    with App(broker.url) as sender:
        sender.send(queue, {"order": 7})
    command = [sys.executable, "-m", "jmsx", "run", "shop.messages:app", "--until-idle", "2s"]
    told = subprocess.run(
        command,
        cwd=tmp_path,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "JMSX_BROKER_URL": broker.url,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    with sqlite3.connect(tmp_path / "shop.db") as db:
        rows = db.execute("SELECT id, shipped FROM shop_order ORDER BY id").fetchall()
    assert rows == [(7, 1), (8, 0)], told.stderr
