"""
The arguments of a handler, determined from its parameters and their annotations once, when it is registered.

::

    def handle(message): ...                                       # also (message, session)
    def handle(order: Order, session: Session): ...                # the body as a type of the program's own
    def handle(order: Order, region: Annotated[str, Property()], sent: Annotated[float, Header("timestamp")]): ...
    def handle(orders: list[Order], messages: list[Message]): ...  # with batch=
    def handle(order: Order, *, db: sqlite3.Connection): ...       # with dedupe=DatabaseStore(...)

A parameter with a default value keeps it, except for the first one, the Session, the Message, and those with a Property
or Header.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from jmsx.app.bodies import Read, body_reader, not_readable, shown, value_reader, without_none
from jmsx.core.option_checks import check_text, nearest
from jmsx.errors import ConfigurationError
from jmsx.jms.destination import Destination
from jmsx.jms.handlers import check_result, check_runs, name_of
from jmsx.jms.message import Message
from jmsx.jms.outcomes import Reject
from jmsx.jms.session import Session
from jmsx.jms.translation import ReceivedMessage
from jmsx.log import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_ORDER: Final = "the message comes first, then the session: (message: Message, session: Session)"

_WHAT: Final = (
    "a parameter is a Message, its body (str, bytes, dict, a dataclass, ...), the Session, Annotated[..., Property()]"
    " or Annotated[..., Header()]; the connection of a DatabaseStore is given by keyword: (message, *, db)"
)

#: Names that a second parameter for the session does not have: stomp.py once passed (headers, body), and kombu passes
#: (body, message).
_NO_SESSION: Final = frozenset(
    {"body", "data", "frame", "headers", "message", "msg", "payload", "properties"}
)

_EMPTY: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Property:
    """
    Gives a handler's parameter a property of the message: `region: Annotated[str, Property("region")]`.

    Without a `name`, the property has the name of the parameter.

    The value is converted to the annotated type: `str`, `int`, `float` or `bool`, also from text, or a type that
    pydantic can read. A message without the property becomes a dead letter at once, unless the parameter has a default
    or its type includes None.
    """

    name: str = ""

    def __post_init__(self) -> None:
        check_text("the name of a Property", self.name)


@dataclass(frozen=True, slots=True)
class Header:
    """
    Gives a handler's parameter a field of its `Message`: `id: Annotated[str, Header("correlation_id")]`.

    JMS's names, such as `JMSCorrelationID`, may be used, too; without a `name`, the field has the name of the
    parameter. A message without the field becomes a dead letter at once, unless the parameter has a default or its type
    includes None.
    """

    name: str = ""

    def __post_init__(self) -> None:
        check_text("the name of a Header", self.name)


class Part(Enum):
    """Which part of a delivery a parameter of a handler gets."""

    MESSAGE = "the message"
    SESSION = "the session"
    BODY = "the body"
    PROPERTY = "a property"
    HEADER = "a header"
    DATABASE = "the connection"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a handler, and how to find its value."""

    name: str
    of: Part
    read: Read = field(default=lambda message: message)  #: makes the value from a message
    by_name: bool = False


class InvalidMessagesError(Exception):
    """Some messages of a batch do not fit the handler's parameters; the handler was not called."""

    def __init__(self, rejects: dict[Message, Reject]) -> None:
        super().__init__(
            f"{counted(len(rejects), 'message')} of the batch {'does' if len(rejects) == 1 else 'do'} not fit"
        )
        self.rejects = rejects


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a handler, and how to fill them from a message."""

    of: tuple[Parameter, ...]  #: positional ones first
    batch: bool = False
    is_message: bool = field(init=False)  #: it takes the message (or a list) only

    def __post_init__(self) -> None:
        alone = [(one.of, one.by_name) for one in self.of] == [(Part.MESSAGE, False)]
        object.__setattr__(self, "is_message", alone)

    @property
    def takes_session(self) -> bool:
        """Whether the handler gets the session."""
        return any(one.of is Part.SESSION for one in self.of)

    @property
    def database(self) -> str | None:
        """The name of the parameter that gets the connection of a DatabaseStore; None: there is none."""
        return next((one.name for one in self.of if one.of is Part.DATABASE), None)

    def arguments(
        self, taken: Message | list[Message], session: Session, database: Any
    ) -> tuple[list[Any], dict[str, Any]]:
        """
        Return the handler's arguments for the message, or with `batch` the messages, that were `taken`.

        Raises Reject if the message does not fit the parameters; for a batch, InvalidMessagesError.
        """
        if self.is_message:
            return [taken], {}
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for one in self.of:
            value: Any
            if one.of is Part.SESSION:
                value = session
            elif one.of is Part.DATABASE:
                value = database
            elif isinstance(taken, list):
                value = self._column(one, taken)
            else:
                value = one.read(taken)
            if one.by_name:
                named[one.name] = value
            else:
                positional.append(value)
        return positional, named

    def _column(self, parameter: Parameter, batch: list[Message]) -> list[Any]:
        try:
            return [parameter.read(message) for message in batch]
        except Reject:
            raise InvalidMessagesError(self._rejects(batch)) from None

    def _rejects(self, batch: list[Message]) -> dict[Message, Reject]:
        rejects: dict[Message, Reject] = {}
        for message in batch:
            try:
                for one in self.of:
                    one.read(message)
            except Reject as reject:
                rejects[message] = reject
        return rejects


def parameters_of(handler: Callable[..., Any], *, batch: bool = False) -> Parameters:
    """
    Return the parameters of `handler`, which takes a message, or with `batch` a list of messages.

    Raises ConfigurationError for a signature that makes no sense, and for a function whose body does not run when it is
    called.
    """
    check_runs(handler, awaited=True)
    signature = _signature(handler)
    given = list(signature.parameters.values())
    _check_first(handler, given, batch=batch)
    reading = _Reading(handler, batch=batch)
    check_result(handler, reading.result(signature.return_annotation))
    skipped = False
    for index, parameter in enumerate(given):
        keyword = parameter.kind is parameter.KEYWORD_ONLY
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if not reading.take(parameter, first=index == 0, by_name=keyword or skipped):
            skipped = skipped or not keyword
    reading.check()
    return Parameters(tuple(sorted(reading.found, key=lambda one: one.by_name)), batch)


def _signature(handler: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(handler)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigurationError(
            f"nobody can tell what {name_of(handler)} takes ({error}); give a function of (message)"
        ) from error


def _check_first(
    handler: Callable[..., Any], given: list[inspect.Parameter], *, batch: bool
) -> None:
    """Raise ConfigurationError if the first parameter can be nothing of a message."""
    name = name_of(handler)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not given or given[0].kind not in positional:
        taken = "messages" if batch else "message"
        hidden = given and given[0].kind is inspect.Parameter.VAR_POSITIONAL
        hint = "; if a decorator has made it, have that use functools.wraps" if hidden else ""
        raise ConfigurationError(f"{name} must take ({taken}) or ({taken}, session){hint}")
    first = given[0]
    if first.name in ("self", "cls"):
        raise ConfigurationError(
            f"{name} is a method of no object yet, so {first.name} would be the message; register the method of an"
            " object, as in app.consumer('queue://NAME')(shop.handle)"
        )
    if first.name.strip("_") == "session" and first.annotation is _EMPTY:
        raise ConfigurationError(
            f"{name} calls its first parameter {first.name}, and it gets a Message; {_ORDER}"
        )


class _Reading:
    """Parameters as they are found."""

    def __init__(self, handler: Callable[..., Any], *, batch: bool) -> None:
        self.found: list[Parameter] = []
        self._handler = handler
        self._name = name_of(handler)
        self._batch = batch
        self._names = _names_of(handler)

    def result(self, annotation: Any) -> Any:
        """Return what it says that it returns; None where only a type checker knows what that is."""
        try:
            return self._type("return", annotation)
        except Exception:  # noqa: BLE001 - evaluating an annotation may raise anything
            return None

    def take(self, parameter: inspect.Parameter, *, first: bool, by_name: bool) -> bool:
        """Note what a parameter gets; False if it keeps its default."""
        annotation = self._resolved(parameter)
        self._check_strange(parameter, annotation)
        marker, plain = _marked(annotation)
        self._check_marker(parameter, plain)
        ours = parameter.default is None and _is_ours(annotation)  # functools.partial may give one
        if parameter.default is not _EMPTY and marker is None and not first and not ours:
            return False
        if marker is not None:
            read = self._read_marked(parameter, marker, plain)
            of = Part.PROPERTY if isinstance(marker, Property) else Part.HEADER
            self.found.append(Parameter(parameter.name, of, read, by_name))
        elif parameter.kind is parameter.KEYWORD_ONLY and not _is_ours(annotation):
            self.found.append(Parameter(parameter.name, Part.DATABASE, by_name=True))
        else:
            self.found.append(self._by_type(parameter, annotation, first=first, by_name=by_name))
        return True

    def check(self) -> None:
        """Raise ConfigurationError for what is there twice."""
        for of in (Part.MESSAGE, Part.SESSION, Part.BODY, Part.DATABASE):
            names = [one.name for one in self.found if one.of is of]
            if len(names) > 1 and of is Part.DATABASE:
                raise ConfigurationError(
                    f"{self._name} has several parameters for a database connection ({', '.join(names)}), and its"
                    " DatabaseStore gives it one: keep one of them"
                )
            if len(names) > 1:
                raise ConfigurationError(
                    f"{self._name} wants {of.value} twice, as {' and as '.join(names)}; {_WHAT}"
                )

    def _check_strange(self, parameter: inspect.Parameter, annotation: Any) -> None:
        """Raise ConfigurationError for what only another framework could fill in, and for two marks of ours."""
        extras = typing.get_args(annotation)[1:] if _is_annotated(annotation) else ()
        bound = self._is_bound(parameter, annotation)
        marks = () if bound else (parameter.default, *extras)
        for one in marks:
            root = type(one).__module__.partition(".")[0]
            if root in _FRAMEWORKS:
                raise ConfigurationError(
                    f"{self._name} has a {type(one).__name__} of {root} at {parameter.name}, which jmsx does not fill"
                    " in; it gives Annotated[str, Property()] and Annotated[str, Header()], and what else a handler"
                    f" needs is bound before: functools.partial({self._name}, {parameter.name}=...)"
                )
        if len(ours := [one for one in map(_made, extras) if one is not None]) > 1:
            raise ConfigurationError(
                f"{self._name} takes {parameter.name} from {' and '.join(map(repr, ours))}, and it gets one: keep one"
            )

    def _is_bound(self, parameter: inspect.Parameter, annotation: Any) -> bool:
        """Return whether its default is what it shall be: functools.partial has bound it, or its type says so."""
        bound = self._handler.keywords if isinstance(self._handler, functools.partial) else {}
        plain, _ = without_none(annotation)
        return parameter.name in bound or plain in type(parameter.default).__mro__[:-1]

    def _check_marker(self, parameter: inspect.Parameter, annotation: Any) -> None:
        """Raise ConfigurationError for a Property or Header in another place than an Annotated's second."""
        plain = typing.get_args(annotation)[0] if _is_annotated(annotation) else annotation
        for one in (parameter.default, plain):
            marker = _made(one)
            if marker is not None:
                kind = "str" if one is plain or plain is _EMPTY else shown(plain)
                raise ConfigurationError(
                    f"{self._name} has {type(marker).__name__} as the {'type' if one is plain else 'default'} of"
                    f" {parameter.name}; write {parameter.name}: {_spelt(kind, marker)}"
                )
        bound = self._is_bound(parameter, annotation)
        for inner in () if bound else _annotated_within(plain):
            marker, kind = _marked(inner)
            if marker is not None:
                whole = shown(plain).replace(shown(inner), shown(kind))
                raise ConfigurationError(
                    f"{self._name} has {type(marker).__name__} within the type of {parameter.name}; write"
                    f" {parameter.name}: {_spelt(whole, marker)}"
                )

    def _by_type(
        self, parameter: inspect.Parameter, annotation: Any, *, first: bool, by_name: bool
    ) -> Parameter:
        """Return a parameter that gets the message, the session or the body."""
        name, position = parameter.name, len(self.found)
        if _says_nothing(annotation):
            of = self._unsaid(name, position)
        elif _is(annotation, Session):
            of = Part.SESSION
        else:
            one = self._of_list(parameter, annotation) if self._batch else annotation
            self._check_one(parameter, annotation)
            self._check_definite(parameter, one)
            of = Part.MESSAGE if _is(one, Message) or _says_nothing(one) else Part.BODY
            annotation = one
        if of is Part.SESSION and first:
            gets = "with batch= it gets a list[Message]" if self._batch else "it gets a Message"
            raise ConfigurationError(
                f"{self._name} says that {name} is a {_written(parameter)}, and {gets}; {_ORDER}"
            )
        if of is not Part.BODY:
            return Parameter(name, of, by_name=by_name)
        try:
            return Parameter(name, of, body_reader(annotation), by_name)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{self._name} takes {name}: {_written(parameter)}, but {error}. {_WHAT[0].upper()}{_WHAT[1:]}"
            ) from error

    def _unsaid(self, name: str, position: int) -> Part:
        """Return what a parameter gets that does not say: the message first, and then the session."""
        if position == 0:
            return Part.MESSAGE
        if (
            position == 1
            and self.found[0].of is Part.MESSAGE
            and name.strip("_") not in _NO_SESSION
        ):
            return Part.SESSION
        raise ConfigurationError(
            f"{self._name} does not say what {name} is, and must take (message), (message, session), or say"
            f" it by annotations: {_WHAT}"
        )

    def _of_list(
        self,
        parameter: inspect.Parameter,
        annotation: Any,
        marker: Property | Header | None = None,
    ) -> Any:
        """Return what is in the list that a handler of batches takes."""
        origin = typing.get_origin(annotation) or annotation
        inner = (typing.get_args(annotation) or (Any,))[0]
        listed = isinstance(origin, type) and issubclass(origin, collections.abc.Iterable)
        if listed and issubclass(list, origin) and not _of_messages(inner):
            return inner
        one = "Message" if _of_messages(annotation) or _is(annotation, Message) else None
        kind = _spelt(f"list[{one or shown(annotation)}]", marker)
        raise ConfigurationError(
            f"{self._name} says that {parameter.name} is a {_written(parameter)}, and with batch= it gets a"
            f" list[{one or '...'}]; write ({parameter.name}: {kind})"
        )

    def _check_one(self, parameter: inspect.Parameter, annotation: Any) -> None:
        """Raise ConfigurationError for a list of messages where they come one by one."""
        if not self._batch and _of_messages(annotation) and not _is(annotation, Message):
            raise ConfigurationError(
                f"{self._name} says that {parameter.name} is a {_written(parameter)}, and it gets a Message;"
                " for several at once say @app.consumer(..., batch=500)"
            )

    def _check_definite(self, parameter: inspect.Parameter, one: Any) -> None:
        """Raise ConfigurationError for a type variable, and for a kind of message that nobody receives."""
        where = f"{self._name} takes {parameter.name}: {_written(parameter)}, and"
        if isinstance(one, typing.TypeVar):
            raise ConfigurationError(
                f"{where} a type variable does not say what that is: write Message, dict or the like"
            )
        kinds = [kind for kind in _classes(one) if issubclass(kind, Message)]
        if kinds and not any(issubclass(ReceivedMessage, kind) for kind in kinds):
            raise ConfigurationError(
                f"{where} what is received is a Message: write Message, or dict for the body"
            )

    def _read_marked(
        self, parameter: inspect.Parameter, marker: Property | Header, annotation: Any
    ) -> Read:
        """Return what reads a property or header."""
        if self._batch:
            annotation = self._of_list(parameter, annotation, marker)
        where = f"{self._name} takes {parameter.name}: {_written(parameter)}, but "
        name, optional = marker.name or parameter.name, without_none(annotation)[1]
        try:
            if isinstance(marker, Property):
                value, what = _property_of(name), f"property {name!r}"
                convert = value_reader(annotation)
            else:
                value, what = _header_of(name, annotation), f"header {name!r}"
                convert = _as_it_is
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}{error}") from error
        default = None if optional else parameter.default
        if parameter.default is not _EMPTY:
            default = parameter.default

        def read(message: Message) -> Any:
            found = value(message)
            if found is None:
                if default is _EMPTY:
                    needed = "the handler cannot do without it"
                    raise Reject from not_readable(message, f"it has no {what}", needed)
                return default
            try:
                return convert(found)
            except ValueError as error:
                raise Reject from not_readable(message, f"{what} does not fit", str(error))

        return read

    def _resolved(self, parameter: inspect.Parameter) -> Any:
        """Return its annotation, also where that is written as text."""
        annotation = parameter.annotation
        try:
            return self._type(parameter.name, annotation)
        except ConfigurationError:
            raise
        except Exception as error:
            last = str(annotation).strip("'\"").rpartition(".")[2]
            ours = next((one for one in (Message, Session) if one.__name__ == last), None)
            if ours is not None:  # a name that was imported under TYPE_CHECKING only
                return ours
            raise ConfigurationError(
                f"{self._name} takes {parameter.name}: {annotation}, and nobody knows what that is when the program"
                f" runs ({error}): import it where the program does, and not under TYPE_CHECKING"
            ) from error

    def _type(self, name: str, annotation: Any) -> Any:
        """Return what an annotation stands for; raises what looking for it raises."""
        if annotation is _EMPTY:
            return annotation
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        return typing.get_type_hints(holder, *self._names, include_extras=True)[name]


def _property_of(name: str) -> Callable[[Message], Any]:
    """Return what reads the property called `name`; raises ConfigurationError for a header of JMS, which is none."""
    if name in _JMS_NAMES and not name.startswith("JMSX"):
        raise ConfigurationError(f"{name} is no property: write Header({_JMS_NAMES[name]!r})")
    return lambda message: message.properties.get(name)


def _header_of(name: str, annotation: Any) -> Callable[[Message], Any]:
    """Return what reads the header called `name`; raises ConfigurationError for none, and for another type."""
    attribute = _JMS_NAMES.get(name, name)
    if attribute not in HEADERS:
        near = nearest(name, list(HEADERS))
        raise ConfigurationError(
            f"there is no header {name!r}; did you mean {near!r}?"
            if near
            else f"there is no header {name!r} but {', '.join(sorted(HEADERS))}; what a sender set himself is"
            f" Property({name!r})"
        )
    kind = HEADERS[attribute]
    plain, _ = without_none(annotation)
    if not _says_nothing(plain) and not (isinstance(plain, type) and issubclass(kind, plain)):
        raise ConfigurationError(
            f"header {name!r} is of type {kind.__name__}; annotate its parameter so"
        )
    return lambda message: getattr(message, attribute)


def _as_it_is(value: Any) -> Any:
    return value


def _marked(annotation: Any) -> tuple[Property | Header | None, Any]:
    """Return the property or header that an annotation names, and the type that is left."""
    if not _is_annotated(annotation):
        return None, annotation
    plain, *extras = typing.get_args(annotation)
    markers = [_made(one) for one in extras]
    marker = next((one for one in markers if one is not None), None)
    others = tuple(one for one, made in zip(extras, markers, strict=True) if made is None)
    return marker, typing.Annotated[(plain, *others)] if others else plain


def _spelt(kind: str, marker: Property | Header | None) -> str:
    """Return how a parameter of that kind is written."""
    if marker is None:
        return kind
    return f"Annotated[{kind}, {type(marker).__name__}({repr(marker.name) if marker.name else ''})]"


def _is_annotated(annotation: Any) -> bool:
    return typing.get_origin(annotation) is typing.Annotated


def _annotated_within(annotation: Any) -> Iterator[Any]:
    """Yield the `Annotated[...]` that an annotation is made of."""
    if _is_annotated(annotation):
        yield annotation
    for one in typing.get_args(annotation):
        yield from _annotated_within(one)


def _made(extra: object) -> Property | Header | None:
    """Return a marker, also one whose parentheses were left out."""
    if extra is Property or extra is Header:
        return extra()
    return extra if isinstance(extra, Property | Header) else None


def _written(parameter: inspect.Parameter) -> str:
    return shown(parameter.annotation)


def _is_ours(annotation: Any) -> bool:
    """Return whether it names what jmsx gives, so that a parameter by keyword is not the connection of a store."""
    return not _says_nothing(annotation) and (_is(annotation, Message) or _is(annotation, Session))


def _is(annotation: Any, given: type) -> bool:
    """Return whether `annotation` means a `given`."""
    return any(issubclass(one, given) for one in _classes(annotation))


def _classes(annotation: Any) -> list[type]:
    """Return the classes that an annotation names, each for itself, but for None."""
    plain, _ = without_none(annotation)
    if _is_annotated(plain):
        return _classes(typing.get_args(plain)[0])
    if typing.get_origin(plain) in (typing.Union, types.UnionType):
        return [each for one in typing.get_args(plain) for each in _classes(one)]
    return [plain] if isinstance(plain, type) and typing.get_origin(plain) is None else []


def _of_messages(annotation: Any) -> bool:
    """Return whether it is something that has messages in it."""
    return any(_is(one, Message) or _of_messages(one) for one in typing.get_args(annotation))


def _says_nothing(annotation: Any) -> bool:
    """Return whether it admits anything, so that nobody can tell what is meant."""
    if _is_annotated(annotation):
        return _says_nothing(typing.get_args(annotation)[0])
    protocol = getattr(annotation, "_is_protocol", False) and isinstance(annotation, type)
    return annotation in (_EMPTY, Any, object) or protocol


def _names_of(handler: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what names in its annotations mean: in its module, and in the functions that it is written in."""
    inner = inspect.unwrap(handler)
    while hasattr(inner, "func"):
        inner = inner.func
    inner = getattr(inner, "__func__", inner)
    if not hasattr(inner, "__globals__"):
        inner = getattr(type(inner).__call__, "__func__", type(inner).__call__)
    own: dict[str, Any] = {}
    # the frame that registers the handler knows the local names around it
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "jmsx":
        frame = frame.f_back
    if frame is not None:
        own.update(frame.f_locals)
    code, cells = getattr(inner, "__code__", None), getattr(inner, "__closure__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), cells or (), strict=False):
        try:
            own[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return {**_KNOWN, **getattr(inner, "__globals__", {})}, own


#: Names that annotations may use although they were imported under TYPE_CHECKING, and do not exist at run time.
_KNOWN: Final = {
    **{
        name: getattr(module, name)
        for module in (typing, collections.abc)
        for name in module.__all__
    },
    **{one.__name__: one for one in (Message, Session, Destination, Property, Header)},
}

#: Frameworks whose own markers in annotations or defaults fill in parameters.
_FRAMEWORKS: Final = frozenset(
    {"dishka", "fast_depends", "fastapi", "faststream", "litestar", "taskiq_dependencies"}
)

#: The fields of a Message that `Header` may name, and their types.
HEADERS: Final[Mapping[str, type]] = {
    "correlation_id": str,
    "type": str,
    "reply_to": Destination,
    "message_id": str,
    "key": str,
    "destination": Destination,
    "original_destination": Destination,
    "timestamp": float,
    "expiration": float,
    "priority": int,
    "persistent": bool,
    "delivery_count": int,
    "redelivered": bool,
    "group_id": str,
    "group_sequence": int,
}

_JMS_NAMES: Final = {
    "JMSCorrelationID": "correlation_id",
    "JMSType": "type",
    "JMSReplyTo": "reply_to",
    "JMSMessageID": "message_id",
    "JMSDestination": "destination",
    "JMSTimestamp": "timestamp",
    "JMSExpiration": "expiration",
    "JMSPriority": "priority",
    "JMSDeliveryMode": "persistent",
    "JMSRedelivered": "redelivered",
    "JMSXDeliveryCount": "delivery_count",
    "JMSXGroupID": "group_id",
    "JMSXGroupSeq": "group_sequence",
}
