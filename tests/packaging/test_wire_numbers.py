"""
Text of the wire becomes a number in `jmsx.core.headers.whole` only.

`"²".isdigit()` is true and `int("²")` raises; `int` takes digits of any alphabet, and refuses more than 4,300 of them.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]

#: Where all that a client or a broker may have written is read.
WIRE: Final = (
    "jmsx/app", "jmsx/check", "jmsx/core", "jmsx/dead_letters", "jmsx/drivers", "jmsx/jms", "jmsx/stores",
    "jmsx/testing", "adapters/jmsx_classic", "adapters/jmsx_artemis", "adapters/jmsx_broker/wire.py",
)  # fmt: skip

#: Calls there whose argument is a number already, or a text whose form was checked; and why.
ALLOWED: Final = {
    ("jmsx/core/headers.py", "int(text)"): "the one place",
    ("jmsx/app/bodies.py", "float(value)"): "of a form that was checked",
    ("jmsx/app/endpoint.py", "int(found['port'])"): "the application's own, of a pattern",
    ("jmsx/app/pacing.py", "int(found[1])"): "the application's own, of a pattern",
    ("jmsx/dead_letters/letter.py", "float('inf')"): "for ever",
    ("jmsx/stores/idempotency.py", "int(exponent)"): "of a Decimal",
    ("jmsx/core/selectors.py", "int(part)"): "a token of a selector, of a form that was checked",
    ("jmsx/core/policy.py", "float(base)"): "a number of the policy",
    ("jmsx/core/wire.py", "int(own[2])"): "of a pattern: at most 19 ASCII digits",
    ("jmsx/core/wire.py", "int(one[2])"): "of a pattern: at most 19 ASCII digits",
    ("jmsx/core/wire.py", "int(found[2])"): "of a pattern: at most 19 ASCII digits",
    ("jmsx/drivers/tls.py", "int(self._begun is data)"): "a truth",
    ("jmsx/drivers/reconnect.py", "int(retrying.statistics['attempt_number'])"): "tenacity's count",
    ("jmsx/jms/properties.py", "int(exponent)"): "of a Decimal of ours, that is to be sent",
    ("jmsx/jms/properties.py", "int(value)"): "the application's own, of a form that was checked, or a number already",
    ("jmsx/jms/properties.py", "int(number)"): "a number already, of a subclass",
    ("jmsx/jms/properties.py", "float(value)"): "a number already, of a subclass",
    ("jmsx/jms/translation.py", "int(priority)"): "a number already, of a subclass",
    ("jmsx/core/map_body.py", "int(value)"): "a number already, of a subclass",
    ("jmsx/core/map_body.py", "float(value)"): "a number already, of a subclass",
    ("jmsx/jms/properties.py", "float(text)"): "of a form that was checked",
    ("jmsx/core/map_body.py", "float(text)"): "of a form that was checked; it cannot overflow, but become infinite",
    ("jmsx/testing/selector.py", "int(text, 16)"): "a token of a selector",
    ("jmsx/testing/selector.py", "int(text, 8)"): "a token of a selector",
    ("jmsx/testing/selector.py", "int(text.rstrip('lL'))"): "a token of a selector",
    ("jmsx/core/durations.py", "float(number)"): "of a form that was checked",
    ("jmsx/core/durations.py", "float(found)"): "a number already",
    ("jmsx/testing/classic/message.py", "int(v.lower() == 'true')"): "a truth",
}  # fmt: skip


def test_nobody_asks_str_whether_it_is_a_number() -> None:
    """Of all that jmsx is made of."""
    asked = [
        f"{path}:{node.lineno}: .{node.attr}"
        for path, node in nodes(ROOT / "jmsx", ROOT / "adapters")
        if isinstance(node, ast.Attribute) and node.attr in {"isdigit", "isdecimal", "isnumeric"}
    ]
    assert asked == [], "read it with jmsx.core.headers.whole"


def test_text_of_the_wire_is_read_by_whole() -> None:
    """Arithmetic is no text; whatever else becomes a number stands in the list above."""
    found = {
        (path, ast.unparse(node)): f"{path}:{node.lineno}"
        for path, node in nodes(*(ROOT / name for name in WIRE))
        if converts(node)
    }
    unknown = {place for call, place in found.items() if call not in ALLOWED}
    assert unknown == set(), "read it with jmsx.core.headers.whole, or say above why it is no text"
    assert set(ALLOWED) <= set(found), "of what is allowed above something is gone"


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("int(headers['x'])", True),
        ("float(text)", True),
        ("map(int, parts)", True),
        ("sorted(headers, key=int)", True),
        ("partial(int, text)", True),
        ("isinstance(x, int)", False),
        ("type(x) in (int, float)", False),
        ("read = int", True),
        ("int(seconds * 1000)", False),
        ("int(min(a, b))", False),
        ("int(a + b)", True),
        ("int(a + b * 2)", False),
        ("int(7)", False),
    ],
)
def test_what_counts_as_reading_a_number(source: str, *, caught: bool) -> None:
    """The rule itself."""
    assert any(map(converts, ast.walk(ast.parse(source)))) is caught


def converts(node: ast.AST) -> TypeGuard[ast.Call | ast.Assign]:
    """Whether `node` makes a number of what may be a text: `int(x)` or `float(x)`, or hands either on to who may."""
    if isinstance(node, ast.Assign):
        return is_number_type(node.value)
    if not isinstance(node, ast.Call):
        return False
    given = [*node.args, *(one.value for one in node.keywords)]
    if any(map(is_number_type, given)) and called(node) not in {"isinstance", "issubclass"}:
        return True
    return is_number_type(node.func) and bool(node.args) and not is_arithmetic(node.args[0])


def is_number_type(node: ast.AST) -> bool:
    """`int` or `float`."""
    return isinstance(node, ast.Name) and node.id in {"int", "float"}


def called(call: ast.Call) -> str:
    """The name of what is called."""
    return call.func.id if isinstance(call.func, ast.Name) else ""


def is_arithmetic(node: ast.AST) -> bool:
    """What no text could be an operand of."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, str)
    if isinstance(node, ast.Call):
        return called(node) in {"all", "any", "max", "min", "round"}
    if not isinstance(node, ast.BinOp) or isinstance(node.op, ast.Mod):
        return False
    return not isinstance(node.op, ast.Add) or any(map(is_arithmetic, (node.left, node.right)))


def nodes(*roots: Path) -> Iterator[tuple[str, ast.AST]]:
    """Every node of every module below `roots`, with the name of its file."""
    for root in roots:
        for path in [root] if root.is_file() else sorted(root.rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            yield from ((name, node) for node in ast.walk(ast.parse(path.read_text("utf-8"))))
