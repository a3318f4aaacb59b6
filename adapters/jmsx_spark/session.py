"""A quiet local Spark session, with the settings that measured best for this job."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

_JAVA_NEEDED: Final = 17
_INSTALL: Final = "install it with: apt-get install openjdk-17-jre-headless"

#: A large log pays for the optimising compiler; a small one ends before it does (47 or 28 CPU seconds
#: for 20,000 lines, 28 or 49 for the first step with 4 million).
_JVM_OPTIONS: Final = {
    "large": "-XX:+UseParallelGC",
    "small": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
#: Measured on 2 cores: with 200 partitions or the UI, they cost more than the job.
_SETTINGS: Final = {
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "200000",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def local_session(
    log: Path, *, size: Literal["small", "large"] = "large", cores: int = 2
) -> Iterator[SparkSession]:
    """
    Lend a Spark session; one that is already active in this process is lent as it is, and kept.

    All that Spark and its JVM say goes to the file `log`. `size` of the input picks the JVM's options.

    Raises:
        ConfigurationError: there is no Java, or it is too old.

    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    check_java()
    conf = SparkConf().setMaster(f"local[{cores}]").setAppName("jmsx")
    conf.set("spark.driver.extraJavaOptions", _JVM_OPTIONS[size]).setAll(list(_SETTINGS.items()))
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        gateway = None
        if SparkContext._gateway is None:  # noqa: SLF001 - a second JVM in the process would not be ours
            gateway = launch_gateway(conf, {"stdout": sink, "stderr": sink})  # type: ignore[no-untyped-call]  # pyspark ships it so
    context = SparkContext(gateway=gateway, conf=conf)
    session = SparkSession(context)
    try:
        yield session
    finally:
        session.stop()


def check_java() -> None:
    """Make sure that the Java that Spark would start is there and new enough."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).is_file():
        raise ConfigurationError(
            f"the report needs Java {_JAVA_NEEDED} or newer, and there is none"
            f" ({'JAVA_HOME is ' + home if home else 'no java on the PATH'}); {_INSTALL}"
        )
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - the user's own java
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is None or int(found[1]) < _JAVA_NEEDED:
        words = told.partition("\n")[0] or "it does not say its version"
        raise ConfigurationError(
            f"the report needs Java {_JAVA_NEEDED} or newer; {java} is: {words}; {_INSTALL}"
        )
