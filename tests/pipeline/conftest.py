"""One Spark session for all tests that need one: starting it takes longer than using it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx_spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Lend the Spark session of this test run; `report` uses it too, as it is active."""
    with session(tmp_path_factory.mktemp("spark") / "spark.log", master="local[2]") as shared:
        yield shared
