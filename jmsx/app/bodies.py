"""
Conversion between the bodies of messages and the data types of a program.

Text and bytes are taken as they are; everything else is JSON in UTF-8 (RFC 8259), which pydantic parses if a type other
than dict or list is asked for. A MapMessage is read like a JSON object. A body that does not fit its type will never
fit, so the message becomes a dead letter at once.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias
from uuid import UUID

from jmsx.core.dialect import Body
from jmsx.core.headers import LONG, whole
from jmsx.errors import ConfigurationError, MessageFormatError, MessageNotReadableError
from jmsx.jms.message import Message, PropertyValue
from jmsx.jms.outcomes import Reject
from jmsx.log import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

#: A reader: a function that makes a value of a message, and raises Reject for a message that does not fit.
Read = typing.Callable[[Message], Any]

#: The header with the media type of the body, as in STOMP and Artemis; Java sees it as a property of that name.
CONTENT_TYPE: Final = "content-type"

#: How many faults of a body an error names, and how many are examined at most: a long list may have millions.
_TOLD: Final = 5
_LOOKED_AT: Final = 1000

#: The module names in the `repr` of a type.
_MODULES: Final = re.compile(r"(?:[A-Za-z_<][\w<>]*\.)+")

#: A number as Java and JSON write it; Python's `float` would also take digits of other scripts, and underscores.
_FLOAT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|[+-]?Infinity|NaN")

#: How many characters an error gives of a place in a body.
_PLACE: Final = 60

#: Kinds of pydantic schemas that no body can have: JSON cannot express them, or (the last one) their items are checked
#: only while the handler iterates over them.
_NO_BODY: Final = frozenset({"none", "callable", "is-subclass", "is-instance", "generator"})

#: Kinds of pydantic schemas that no property can have.
_NO_PROPERTY: Final = frozenset(
    {
        *_NO_BODY,
        *("dict", "typed-dict", "model", "dataclass", "named-tuple"),
        *("list", "tuple", "set", "frozenset"),
    }
)

#: The description of a property, for errors.
_PROPERTY: Final = (
    "a property, which is a text, number or flag; for JSON in a text write Annotated[pydantic.Json[...],"
    " Property()]"
)

#: Values that pydantic's messages may quote: they come from the type, or are lengths, never data from the body.
_OF_THE_TYPE: Final = frozenset(
    {
        *("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "actual_length"),
        *("field_type", "expected", "expected_tags", "expected_schemes", "pattern", "class"),
        *("class_name", "discriminator", "max_digits", "decimal_places", "whole_digits"),
    }
)

#: Kinds of errors whose cause may be quoted, for it is one of a few fixed phrases of the parser.
_FIXED_WORDS: Final = frozenset(
    {
        *("json_invalid", "date_parsing", "date_from_datetime_parsing", "time_parsing"),
        *("datetime_parsing", "datetime_from_date_parsing", "time_delta_parsing"),
    }
)


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _Model(Protocol):
    """One of pydantic's."""

    __pydantic_core_schema__: ClassVar[Any]


#: The types as which a body can be read, and from which it can be made; Session and Message are not among them.
Data: TypeAlias = "_Plain | _Dataclass | _Model | Mapping[str, object] | Sequence[Data]"
_Plain: TypeAlias = "str | bytes | float | Decimal | UUID | date | time | timedelta | Enum | None"


class _Validator(Protocol):
    """What pydantic's TypeAdapter has of use here."""

    @property
    def core_schema(self) -> Any:
        """The type that is read, in pydantic's own terms."""

    def validate_json(self, data: str | bytes, /) -> Any:
        """Return the object that a text in JSON says."""

    def validate_python(self, value: Any, /) -> Any:
        """Return the object that a value says which is no text, such as a map."""


def body_reader(annotation: Any) -> Read:
    """
    Return a function that reads the body of a message as the type `annotation`.

    Raises ConfigurationError if `annotation` is no type of data, or needs pydantic and that is not installed.
    """
    plain, optional = without_none(annotation)
    read = _plain_reader(plain)
    if read is None:
        adapter = _adapter(plain, _NO_BODY, "a body")
        read = _validated(plain, adapter, raw=_raw_reader(plain))
    return _optional(read) if optional else read


def _plain_reader(annotation: Any) -> Read | None:
    """Return what reads `annotation` if that needs no pydantic."""
    kind, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    anything = all(one in (Any, object) for one in arguments)
    if anything or (kind is dict and arguments[0] is str and arguments[1] in (Any, object)):
        return next((read for one, read in _READERS if one is kind), None)
    return None


def _raw_reader(annotation: Any) -> Read | None:
    """Return what reads a body that is meant as it is, because `annotation` is some kind of text, or of bytes."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _raw_reader(typing.get_args(annotation)[0])
    if isinstance(annotation, typing.NewType):
        return _raw_reader(annotation.__supertype__)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        either = all(_raw_reader(one) for one in typing.get_args(annotation))
        return _text_or_bytes if either else None
    kind = annotation
    if typing.get_origin(annotation) is typing.Literal:
        kind = str if all(isinstance(one, str) for one in typing.get_args(annotation)) else None
    if not isinstance(kind, type):
        return None
    return _text if issubclass(kind, str) else _bytes if issubclass(kind, bytes) else None


def value_reader(annotation: Any) -> Callable[[Any], Any]:
    """
    Return a function that reads the value of a property as the type `annotation`.

    The function takes numbers and text, for many senders send only text, and raises ValueError for a value that does
    not fit. Raises ConfigurationError as `body_reader` does.
    """
    plain, optional = without_none(annotation)
    own = next((read for one, read in _VALUES if one is plain), None)
    read = own or _value_validated(plain)
    return (lambda value: None if value is None else read(value)) if optional else read


def _value_validated(annotation: Any) -> Callable[[Any], Any]:
    adapter = _adapter(annotation, _NO_PROPERTY, _PROPERTY)

    def read(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except _refusals() as error:
            raise ValueError(_words(error, adapter)) from None

    return read


def without_none(annotation: Any) -> tuple[Any, bool]:
    """Return the type without None, and whether None was part of it."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        arguments = typing.get_args(annotation)
        others = tuple(one for one in arguments if one is not type(None))
        if len(others) < len(arguments):
            return typing.Union[others], True  # noqa: UP007 - of as many as there are
    return annotation, False


def written(data: object) -> tuple[Body, dict[str, PropertyValue]]:
    """
    Return `data` as a body, and the properties that say what kind of body it is.

    Raises MessageFormatError for data that JSON cannot express.
    """
    if data is None or isinstance(data, str | bytes):
        return data, {}
    if isinstance(data, bytearray | memoryview):
        return bytes(data), {}
    try:
        text = json.dumps(
            data, default=_in_json, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    except (TypeError, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise MessageFormatError(
            f"a {type(data).__name__} that is sent is JSON, which cannot say it: {why}"
        ) from error
    return text, {CONTENT_TYPE: "application/json"}


def _in_json(value: Any) -> Any:
    """Return what JSON has no word for, in such words as pydantic reads again; raises TypeError if there are none."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    for kinds, say in _SAID:
        if isinstance(value, kinds):
            return say(value)
    raise TypeError(f"there is a {type(value).__name__} in it")


def not_readable(message: Message, wanted: str, words: str) -> MessageNotReadableError:
    """Return the error that says why `message` does not fit the handler's parameters and becomes a dead letter."""
    return MessageNotReadableError(shortened(f"message {message.message_id}: {wanted}: {words}"))


def _text(message: Message) -> str:
    try:
        return message.text
    except MessageNotReadableError as error:
        raise Reject from error


def _text_or_bytes(message: Message) -> str | bytes:
    return _bytes(message) if isinstance(_body(message), bytes) else _text(message)


def _bytes(message: Message) -> bytes:
    body = _body(message)
    if isinstance(body, Mapping):
        raise Reject from not_readable(message, "the body is not bytes", "it is a map")
    return body.encode() if isinstance(body, str) else body or b""


def _dict(message: Message) -> dict[str, Any]:
    body = _body(message)
    found = dict(body) if isinstance(body, Mapping) else _json(message)
    if not isinstance(found, dict):
        told = f"it is a {type(found).__name__} in JSON"
        raise Reject from not_readable(message, "the body is no dict", told)
    return found


def _list(message: Message) -> list[Any]:
    found = _json(message)
    if not isinstance(found, list):
        told = f"it is a {type(found).__name__} in JSON"
        raise Reject from not_readable(message, "the body is no list", told)
    return found


def _body(message: Message) -> Body:
    try:
        return message.body
    except MessageNotReadableError as error:
        raise Reject from error


def _json(message: Message) -> Any:
    try:
        return message.json()
    except MessageNotReadableError as error:
        raise Reject from error


def _optional(read: Read) -> Read:
    return lambda message: None if _body(message) is None else read(message)


def _validated(annotation: Any, adapter: _Validator, raw: Read | None) -> Read:
    """Read by pydantic; `raw`: what reads a body that is not meant as JSON."""
    wanted = f"the body is no {shown(annotation)}"

    def read(message: Message) -> Any:
        body = _body(message)
        try:
            if raw is not None:
                return adapter.validate_python(raw(message))
            if isinstance(body, Mapping):
                return adapter.validate_python(dict(body))
            return adapter.validate_json(body or b"")
        except _refusals() as error:
            raise Reject from not_readable(message, wanted, _words(error, adapter))

    return read


def _adapter(annotation: Any, never: Collection[str], what: str) -> _Validator:
    """Return what reads `annotation`; raises ConfigurationError if nothing can, or `never` is `what` is to be read."""
    try:
        from pydantic import TypeAdapter  # noqa: PLC0415 - 0.2 s, and it may not be there
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"to read a {shown(annotation)} jmsx needs the package pydantic; install it with: pip install"
            " 'jmsx[pydantic]'. Without it there are str, bytes, dict and list"
        ) from error
    if isinstance(annotation, types.FunctionType | types.MethodType):  # pydantic would call it
        raise ConfigurationError(f"{shown(annotation)} is a function, and no type of data")
    try:
        adapter: _Validator = TypeAdapter(annotation)
        fits = not _is_never(adapter.core_schema, never)
    except Exception as error:  # pydantic may raise anything for an annotation that is no type
        words = (str(error) or type(error).__name__).splitlines()[0].partition(". ")[0]
        raise ConfigurationError(
            f"{shown(annotation)} is no type of data to pydantic ({words}), and never {what}"
        ) from error
    if (old := _of_pydantic_1(adapter.core_schema)) is not None:
        raise ConfigurationError(
            f"{shown(old)} is made for pydantic 1: derive it from pydantic.BaseModel, or make it a dataclass"
        )
    if not fits:
        raise ConfigurationError(f"{shown(annotation)} is never {what}")
    return adapter


def _is_never(schema: Any, never: Collection[str]) -> bool:
    """Return whether by pydantic's `schema` a value can be of those kinds only."""
    kind, inner = schema["type"], schema.get("schema")
    if kind == "union":
        choices = [one[0] if isinstance(one, tuple) else one for one in schema["choices"]]
        return all(_is_never(one, never) for one in choices)
    if kind in ("custom-error", "default", "definitions", "nullable") or schema.get("root_model"):
        return _is_never(inner, never)
    own = kind in ("dataclass", "model") and inner["type"].startswith("function-")
    return kind in never and not own  # a validator of its own may take anything


def _of_pydantic_1(schema: object) -> Any:
    """Return what in pydantic's `schema` has a validator that takes the value alone, as in pydantic 1; or None."""
    for one in _parts(schema):
        if isinstance(one, Mapping) and one.get("type") == "with-info":
            try:
                inspect.signature(one["function"]).bind("value", "info")
            except TypeError:
                return getattr(one["function"], "__self__", one["function"])
            except ValueError:  # a function that is not written in Python has no signature
                continue
    return None


def _refusals() -> type[ValueError]:
    """Return what pydantic raises for a body that does not fit."""
    from pydantic import ValidationError  # noqa: PLC0415 - it is imported by now

    return ValidationError


def _words(error: ValueError, adapter: _Validator) -> str:
    """
    Return what pydantic says, and where, without anything of what the body says: that may be secret, and as long as the
    body.

    Its own words are told where nothing is put into them but what the type says. The words of validators may quote
    what they were given, so of these there is the kind of the error alone; of places those that the type names.
    """
    count = error.error_count()  # type: ignore[attr-defined]  # pydantic's ValidationError has it
    if count > _LOOKED_AT:
        return f"{count} errors"
    faults = error.errors(include_url=False, include_input=False)[:_TOLD]  # type: ignore[attr-defined]  # pydantic's ValidationError has it
    names = _strings(adapter.core_schema)
    told = [": ".join([*filter(None, [_place(one["loc"], names)]), _said(one)]) for one in faults]
    return "; ".join(told) + (f"; and {count - _TOLD} more" if count > _TOLD else "")


def _place(parts: Iterable[str | int], names: set[str]) -> str:
    return ".".join(
        str(part)[:_PLACE] if isinstance(part, int) or part in names else "…" for part in parts
    )


def _said(fault: Mapping[str, Any]) -> str:
    from pydantic_core.core_schema import ErrorType  # noqa: PLC0415 - it is imported by now

    kind: str = fault["type"]
    if kind not in typing.get_args(ErrorType):
        return kind
    harmless = fault.get("ctx", {}).keys() <= _OF_THE_TYPE or kind in _FIXED_WORDS
    return str(fault["msg"]) if harmless else kind


def _strings(schema: object) -> set[str]:
    """Return all texts in a schema, among them the names of fields."""
    return {one for one in _parts(schema) if isinstance(one, str)}


def _parts(schema: object) -> Iterator[object]:
    """Yield all that is in a schema."""
    left = [schema]
    while left:
        one = left.pop()
        yield one
        if isinstance(one, Mapping):
            left.extend((*one.keys(), *one.values()))
        elif isinstance(one, list | tuple):
            left.extend(one)


def shown(annotation: Any) -> str:
    """Return a type as it is written in an annotation."""
    if isinstance(annotation, str):
        return annotation
    plain = typing.get_origin(annotation) is None and getattr(annotation, "__name__", None)
    return plain or _MODULES.sub("", repr(annotation))


def _whole(value: Any) -> int:
    number = whole(_written(value), least=~LONG)
    if number is None:
        raise ValueError(f"{shortened(repr(value), 100)} is no whole number")
    return number


def _number(value: Any) -> float:
    if isinstance(value, float) or _FLOAT.fullmatch(_written(value)):
        return float(value)
    raise ValueError(f"{shortened(repr(value), 100)} is no number")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    try:
        return {"true": True, "false": False}[str(value).lower()]
    except KeyError:
        raise ValueError(f"{shortened(repr(value), 100)} is neither true nor false") from None


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


#: How values of types that JSON does not have are written.
_SAID: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    ((date, time), lambda value: value.isoformat()),
    (timedelta, timedelta.total_seconds),
    ((Decimal, UUID), str),
    (Enum, lambda value: value.value),
    (Mapping, dict),
)

#: The types of bodies that are read without pydantic.
_READERS: Final[tuple[tuple[Any, Read], ...]] = (
    (str, _text),
    (bytes, _bytes),
    (dict, _dict),
    (list, _list),
)

#: Values of properties that are read without pydantic, as JMS converts them.
_VALUES: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (str, _written),
    (int, _whole),
    (float, _number),
    (bool, _flag),
)
