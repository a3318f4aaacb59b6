"""Who may know whom: the architecture, as a test."""

from __future__ import annotations

import ast
import functools
import re
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

#: What imports.
Statement: TypeAlias = ast.Import | ast.ImportFrom

ROOT: Final = Path(__file__).parents[3]
PACKAGE: Final = ROOT / "jmsx"

#: What the core may import from outside: nothing that acts.
PURE: Final = {
    "__future__", "base64", "bisect", "collections", "collections.abc", "dataclasses", "datetime", "difflib", "enum",
    "functools", "hashlib", "heapq", "itertools", "json", "math", "re", "typing", "urllib.parse", "xml.etree",
}  # fmt: skip

#: What only one kind of broker has or is called: its headers, settings, and ways to name a queue.
FOREIGN: Final = re.compile(
    r"classic|artemis|activemq|virtual.?topic|divert|AMQ[_.]|(?<!\(\?)::|\bDLQ|ExpiryQueue|\bbrowser:"
    r"|schedulerSupport|maxFrameSize|prioritizedMessages|destination-type|subscription-type|window-size|original-destination|durable-subscription"
    r"|amq-msg|ingress-|remote-temp",
    re.IGNORECASE,
)

#: Where such a word stands in our code outside the adapters, and why.
KNOWN: Final = {
    ("__init__.py", "ArtemisRedeliveryPolicy"): "a formula, for any broker",
    ("core/policy.py", "ArtemisRedeliveryPolicy"): "a formula, for any broker",
    ("core/policy.py", "_artemis_rank"): "which pattern wins in a map of policies, for any broker",
    ("core/policy.py", ": # must be the last part, as in Artemis"): "the same",
    ("config/custom_policy.py", "ArtemisRedeliveryPolicy"): "a formula, for any broker",
    ("config/query.py", "maxFrameSize"): "an option in the Java client's URLs, which are ours, too",
    ("core/destination_names.py", "remote-temp-queue"): "our own name of another connection's, in URIs",
    ("core/destination_names.py", "remote-temp-topic"): "the same",
    ("core/destination_names.py", "remote-temp-"): "the same",
    ("core/frames.py", "destination-type"): "kept of a message that cannot be read, whoever sent it",
    ("core/wire.py", "ActiveMQ"): "OpenWire's first bytes: another protocol, not a broker",
    ("app/registration.py", "a virtual topic on Classic, a divert on Artemis"): "advice before there is a broker",
    ("cli/commands.py", "Reliable messaging for Python services on ActiveMQ, over STOMP."): "what jmsx is for",
    ("cli/commands.py", "dlq"): "our command",
    ("cli/explain.py", "jmsx dlq show"): "our command",
    ("cli/dlq.py", "jmsx dlq"): "our command",
    ("check/preflight.py", "jmsx dlq"): "our command",
    ("cli/explain.py", "dlq_dest"): "a column of our event log",
    ("cli/reconciliation.py", "dlq"): "a row of our report",
    ("cli/dlq.py", "such as ActiveMQ.DLQ"): "an example",
    ("cli/demo.py", "classic"): "which of the brokers that adapters start is the default",
    ("cli/run.py", "JMSX_ARTEMIS_URL"): "a variable of ours, which adapters read",
    ("dead_letters/letter.py", r"(?:^|[.\-_])(?:DLQ|dead|"): "how people call such queues, at any broker",
}  # fmt: skip

#: What each folder, and each module at the root, may import of jmsx, and nothing else of it; `cli` and `__init__` any.
LAYERS: Final = {
    "errors": set(),
    "clock": set(),
    "plugins": {"errors"},
    "files": set(),
    "log": {"errors"},
    "core": {"core", "errors"},
    "observe": {"core", "errors", "log"},
    "config": {"core", "config", "errors", "log", "plugins"},
    "drivers": {"core", "config", "drivers", "errors", "clock", "log", "observe", "plugins"},
    "stores": {"core", "drivers", "stores", "errors", "clock", "log"},
    "jms": {"core", "config", "drivers", "stores", "jms", "errors", "clock", "log", "observe"},
    "app": {"core", "config", "drivers", "stores", "jms", "app", "errors", "clock", "log", "observe", "plugins"},
    "check": {"core", "config", "jms", "app", "check", "errors", "log", "plugins"},
    "dead_letters": {"core", "config", "jms", "dead_letters", "errors", "plugins"},
    "testing": {
        *("core", "config", "drivers", "jms", "app", "testing", "errors", "observe", "plugins"),
    },
    "dedupe": {"stores"},  # its old name
}  # fmt: skip

FILES: Final = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def statements(path: Path) -> tuple[list[Statement], list[Statement]]:
    """The imports of a file, at its top or inside, and those of them that are for the type checker only."""
    tree = ast.parse(path.read_text("utf-8"))
    hidden = [
        statement
        for node in all_in(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in statements_in(node)
    ]
    return statements_in(tree), hidden


def statements_in(tree: ast.AST) -> list[Statement]:
    """All that import."""
    return [node for node in all_in(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def all_in(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement, at any depth; expressions, which are most of a file, hold none."""
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        for inner in getattr(node, block, ()):
            yield inner
            yield from all_in(inner)


def imports(path: Path) -> frozenset[str]:
    """Every module that a file imports, at its top or inside, also for the type checker."""
    return frozenset(imported(statements(path)[0]))


def imported(nodes: Iterable[Statement]) -> Iterator[str]:
    """Every module that is imported; its own package begins with a dot."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            module = "." * node.level + (node.module or "")
            yield module
            if module == "jmsx":
                yield from (f"jmsx.{alias.name}" for alias in node.names)


def modules() -> dict[str, Path]:
    """The files of the library and its adapters, by the names of their modules."""
    packages = [PACKAGE, *(one for one in (ROOT / "adapters").iterdir() if one.is_dir())]
    found = {}
    for package in packages:
        for path in package.rglob("*.py"):
            parts = path.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def needed(nodes: Iterable[Statement], known: Container[str]) -> set[str]:
    """Those of the modules `known` that a file imports: in `from a import b` the module b of a, if there is one."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else str(node.module))
    return {name for name in found if name in known}


def layer(path: Path) -> str:
    """The first folder below jmsx, or the module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def offenders(forbidden: Callable[[Path, str], bool]) -> list[str]:
    """Each file and the module that it imports and may not."""
    return [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in FILES
        for module in sorted(imports(path))
        if forbidden(path, module)
    ]


def test_core_imports_nothing_that_acts() -> None:
    """No clock, socket, thread, random or log, so anyone can drive it."""

    def acts(path: Path, module: str) -> bool:
        return layer(path) == "core" and not module.startswith("jmsx.") and module not in PURE

    assert offenders(acts) == []


def test_layers_look_down_only() -> None:
    """The core knows itself, drivers no JMS face, the JMS face neither app nor command."""

    def looks_up(path: Path, module: str) -> bool:
        known = LAYERS.get(layer(path))
        own = module.startswith("jmsx.")
        return known is not None and own and module.split(".")[1] not in known

    assert offenders(looks_up) == []


def test_the_fake_broker_needs_the_core_alone() -> None:
    """Only what runs applications on it knows more."""

    def looks_up(path: Path, module: str) -> bool:
        alone = layer(path) == "testing" and path.name not in (
            "harness.py",
            "world.py",
            "__init__.py",
        )
        known = {"core", "testing", "errors"}
        return alone and module.startswith("jmsx.") and module.split(".")[1] not in known

    assert offenders(looks_up) == []


def test_no_adapter_and_one_stomp() -> None:
    """Adapters register by entry point; stomp.py is the drivers' affair; imports are absolute."""

    def is_strange(path: Path, module: str) -> bool:
        stomp = module.split(".", maxsplit=1)[0] == "stomp" and layer(path) != "drivers"
        return stomp or module.startswith(("jmsx_", "adapters", "."))

    assert offenders(is_strange) == []


def test_only_adapters_know_one_kind_of_broker() -> None:
    """Each file, outside the fake brokers, and the word in its code; docstrings and comments may explain."""
    found = [
        (path.relative_to(PACKAGE).as_posix(), text)
        for path in FILES
        if layer(path) != "testing"
        for text in words(ast.parse(path.read_text("utf-8")))
        if FOREIGN.search(text)
    ]
    known = {
        (path, part)
        for path, text in found
        for place, part in KNOWN
        if path == place and part in text
    }
    strange = {
        f"{path} knows {text!r}"
        for path, text in found
        if not any(path == place and part in text for place, part in KNOWN)
    }
    assert strange == set()
    assert known == set(KNOWN), "these are gone: take them off the list"


def words(tree: ast.AST) -> Iterator[str]:
    """The names and texts in a file's code, without its docstrings."""
    docstrings = set()
    for node in ast.walk(tree):  # which comes to what a text belongs to before the text
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        ):
            docstrings.add(node.body[0].value)
        match node:
            case ast.Constant(value=str(text)) if node not in docstrings:
                yield text
            case ast.Constant(value=bytes(data)):
                yield data.decode("latin-1")
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                yield name
            case ast.alias(name=name):
                yield name


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("ACK = b'ack'", ["ACK", "ack"]),
        ("def artemis(x):\n    'Says Classic.'\n    return x.amq", ["artemis", "x", "x", "amq"]),
        ("class A:\n    'Says Classic.'\n    text = f'to {1}::b'", ["A", "text", "to ", "::b"]),
        ("import activemq", ["activemq"]),
    ],
)
def test_each_word_of_code_is_seen(source: str, found: list[str]) -> None:
    """So the test above means something."""
    assert set(words(ast.parse(source))) - {"1"} == set(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", ["time"]),
        ("import os.path as p, socket", ["os.path", "socket"]),
        ("from jmsx import clock", ["jmsx", "jmsx.clock"]),
        ("from jmsx.core import events", ["jmsx.core"]),
        ("from . import a", ["."]),
        ("from ..b import a", ["..b"]),
        ("def f():\n    import random", ["random"]),
        ("if TYPE_CHECKING:\n    from jmsx.jms.session import Session", ["jmsx.jms.session"]),
    ],
)
def test_each_form_of_import_is_seen(source: str, found: list[str]) -> None:
    """So the tests above mean something."""
    assert list(imported(statements_in(ast.parse(source)))) == found


def test_no_module_needs_itself() -> None:
    """Not through others either, and not for the type checker: CycleError names a circle of imports."""
    known = modules()
    graph = {name: needed(statements(path)[0], known) for name, path in known.items()}
    assert len(graph) > 200
    assert graph["jmsx.jms.connection"] >= {"jmsx.errors", "jmsx.jms.session"}
    TopologicalSorter(graph).prepare()


def test_no_import_is_hidden_from_python() -> None:
    """What a module needs of ours for types alone is imported like the rest; `__init__` imports on demand."""
    hidden = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in modules().values()
        if path.name != "__init__.py"
        for module in imported(statements(path)[1])
        if module.startswith("jmsx")
    ]
    assert hidden == []


def test_layers_are_there() -> None:
    """The tests above would pass on an empty list."""
    assert {layer(path) for path in FILES} == {*LAYERS, "cli", "__init__", "__main__"}
