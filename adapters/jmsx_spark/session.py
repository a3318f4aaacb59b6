"""A quiet Spark session, whose workers run the same Python and packages as this process."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import py4j  # type: ignore[import-untyped]  # has no types
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import jmsx
import jmsx_eventlog
import jmsx_report
from jmsx.errors import ConfigurationError
from jmsx_report.processes import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]  # has no types

_JAVA_NEEDED: Final = 17
_INSTALL: Final = "install it with: apt-get install openjdk-17-jre-headless"

#: Settings for a JVM that starts quickly and prints nothing unasked: the work is done by Python.
_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A stream writes its progress twice in each batch, to a file that is renamed when complete. By default Hadoop
    # starts eight processes for each to ask whether a path is a link, which is most of the cost. This class does the
    # same without these questions.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

#: All cores of this host.
LOCAL: Final = "local[*]"
#: The loggers that py4j uses, besides the root logger.
_LOGGERS: Final = ("py4j.clientserver", "py4j.java_gateway")
#: Match the reason why a JVM ended: the last cause of an exception, or its first complaint.
_CAUSES: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_COMPLAINT: Final = re.compile(
    r"^(?:Unrecognized |Invalid |Could not |Error: (?!Could not create|A fatal exception)).+$",
    re.MULTILINE,
)
#: Folders of the packages that workers need, which may be in a checkout.
_SHIPPED: Final = (
    *(Path(package.__path__[0]) for package in (jmsx, jmsx_eventlog, jmsx_report)),
    Path(__file__).parent,
)


@contextmanager
def session(log: Path, *, master: str = LOCAL) -> Iterator[SparkSession]:
    """
    Yield a Spark session; one that is already active in this process is yielded as it is, and not stopped.

    All output of Spark and its JVM goes to the file `log`; callers get exceptions. Ctrl-C keeps its former handler:
    Spark's own would call the JVM during another call, which fails. Python workers run the same Python and packages
    from the same folders, unless PYSPARK_PYTHON names another Python.

    Raises:
        ConfigurationError: there is no Java, it is too old, or Spark does not start in it; or there is no Spark at
            `master`.

    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster(master).setAppName("jmsx")
    conf.setAll(list(_SETTINGS.items()))
    for name, value in {**ENVIRONMENT, "PYTHONPATH": _python_path()}.items():
        conf.set(f"spark.executorEnv.{name}", value)
    if _is_here(master):
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        gateway = None
        if SparkContext._gateway is None:  # noqa: SLF001 - a second JVM in the process would not be ours
            gateway = _started(conf, sink, log)
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext(gateway=gateway, conf=conf)
    except Py4JJavaError as error:
        raise _none_at(master, error, log) from error
    # in threads other than the main one no handler was installed
    if signal.getsignal(signal.SIGINT) is not on_interrupt:
        signal.signal(signal.SIGINT, on_interrupt)
    # If Ctrl-C ends a worker, its connection to this server breaks, for which the server would print a traceback.
    accumulators = context._accumulatorServer  # noqa: SLF001 - there is no other way to it
    accumulators.handle_error = lambda *_: None  # type: ignore[method-assign]  # its method is replaced for this object alone
    try:
        spark = SparkSession(context)
    except (
        Py4JJavaError
    ) as error:  # nobody answered there, and that has stopped the context meanwhile
        context.stop()
        raise _none_at(master, error, log) from error
    with _without_tracebacks():
        try:
            yield spark
        finally:
            _stop(spark)


def _none_at(master: str, error: Py4JJavaError, log: Path) -> ConfigurationError:
    """Return the error that there is no Spark at `master`, with the first line of the reason."""
    why = str(error.java_exception.getMessage()).partition("\n")[0].rstrip(".")
    return ConfigurationError(f"no Spark at {master}: {why}; {log} says more")


def _started(conf: SparkConf, sink: IO[bytes], log: Path) -> JavaGateway:
    """Start Spark's JVM with its output to `sink`, the opened file `log`."""
    began = sink.tell()
    try:
        return launch_gateway(conf, {"stdout": sink, "stderr": sink})  # type: ignore[no-untyped-call]  # pyspark ships it so
    except PySparkRuntimeError as error:
        said = log.read_bytes()[began:].decode("utf-8", "replace")
        whys = _CAUSES.findall(said)[-1:] or _COMPLAINT.findall(said)
        why = f": {whys[0]}" if whys else ""
        raise ConfigurationError(
            f"the JVM of Spark did not start{why}; {log} says more, and `--engine local` needs no JVM"
        ) from error


def _stop(spark: SparkSession) -> None:
    """Stop Spark; a second Ctrl-C meanwhile is raised, without an additional warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """Suppress py4j's log records with tracebacks of errors that it also raises."""
    folder = str(Path(py4j.__file__).parent)

    def is_wanted(record: logging.LogRecord) -> bool:
        return not record.pathname.startswith(folder)

    loggers = [logging.getLogger(name) for name in (None, *_LOGGERS)]
    for logger in loggers:
        logger.addFilter(is_wanted)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_wanted)


def _is_here(master: str) -> bool:
    """Return whether driver and workers are all on this host; workers on others must reach the driver by its name."""
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def _python_path() -> str:
    folders = dict.fromkeys(str(package.parent) for package in _SHIPPED)
    return os.pathsep.join(folders)


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
