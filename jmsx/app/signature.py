"""What a handler takes: `(message)`, `(message, session)`, and a database connection by keyword."""

from __future__ import annotations

import inspect
import types
import typing
from typing import TYPE_CHECKING, Any, Final

from jmsx.errors import ConfigurationError
from jmsx.jms.handlers import check_runs, name_of
from jmsx.jms.message import Message
from jmsx.jms.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

#: What the parameters of a handler are given, in this order.
_GIVEN: Final = (Message, Session)

_ORDER: Final = "the message comes first, then the session: (message: Message, session: Session)"


def takes_session(handler: Callable[..., Any], *, batch: bool = False) -> bool:
    """
    Whether `handler(message, session)` is meant rather than `handler(message)`; with `batch`, of a list of messages.

    Raises ConfigurationError for any other signature, for annotations or a first name that say otherwise, and for a
    function whose body a call does not run.
    """
    check_runs(handler, awaited=True)
    name = name_of(handler)
    parameters = [
        parameter
        for parameter in _parameters(handler)
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    if parameters and parameters[0].name in ("self", "cls"):
        raise ConfigurationError(
            f"{name} is a method of no object yet, so {parameters[0].name} would be the message; register the method"
            " of an object, as in app.consumer('queue://NAME')(shop.handle)"
        )
    if not parameters or len(required) > len(_GIVEN):
        taken = "messages" if batch else "message"
        raise ConfigurationError(f"{name} must take ({taken}) or ({taken}, session)")
    first = parameters[0]
    if first.name.strip("_") == "session" and first.annotation is first.empty:
        raise ConfigurationError(
            f"{name} calls its first parameter {first.name}, and it gets a Message; {_ORDER}"
        )
    count = max(len(required), 1)
    if batch:
        _check_batch(handler, first)
    for parameter, given in zip(parameters[batch:count], _GIVEN[batch:], strict=False):
        _check_annotation(handler, parameter, given)
    return count == len(_GIVEN)


def _check_batch(handler: Callable[..., Any], first: inspect.Parameter) -> None:
    """Raise ConfigurationError if the handler says that it expects something else than a list of messages."""
    annotation = _resolved(handler, first.annotation)
    origin = typing.get_origin(annotation) or annotation
    inner = typing.get_args(annotation) or (Any,)
    unknown = annotation in (first.empty, Any) or isinstance(annotation, str | typing.TypeVar)
    several = isinstance(origin, type) and origin is not object and issubclass(list, origin)
    if not unknown and not (several and _fits(inner[0], Message)):
        raise ConfigurationError(
            f"{name_of(handler)} says that {first.name} is a {_shown(first)}, and with batch= it gets a"
            f" list[Message]; write ({first.name}: list[Message])"
        )


def connection_parameter(handler: Callable[..., Any]) -> str | None:
    """The name of the handler's keyword-only parameter, which gets its store's database connection."""
    wanted = [
        parameter.name
        for parameter in _parameters(handler)
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    if len(wanted) > 1:
        raise ConfigurationError(
            f"{name_of(handler)} wants {', '.join(wanted)}; there is one connection"
        )
    return wanted[0] if wanted else None


def _parameters(handler: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"nobody can tell what {name_of(handler)} takes ({error}); give a function of (message)"
        ) from error


def _check_annotation(
    handler: Callable[..., Any], parameter: inspect.Parameter, given: type
) -> None:
    """Raise ConfigurationError if the handler says that it expects something else there."""
    annotation = _resolved(handler, parameter.annotation)
    if _fits(annotation, given):
        return
    shown = _shown(parameter)
    name, other = name_of(handler), _GIVEN[1 - _GIVEN.index(given)]
    swapped = _fits(annotation, other)
    remedy = _ORDER if swapped else "take (message: Message) and read message.body or message.text"
    if typing.get_origin(annotation) is list and _fits(typing.get_args(annotation)[0], given):
        remedy = "for several at once say @app.consumer(..., batch=500)"
    raise ConfigurationError(
        f"{name} says that {parameter.name} is a {shown}, and it gets a {given.__name__}; {remedy}"
    )


def _shown(parameter: inspect.Parameter) -> str:
    """Its annotation, as it is written or as people know it."""
    shown = parameter.annotation
    if isinstance(shown, str):
        return shown
    plain = typing.get_origin(shown) is None and getattr(shown, "__name__", None)
    return plain or repr(shown).replace("jmsx.jms.message.", "")


def _resolved(handler: Callable[..., Any], annotation: object) -> object:
    """The annotation itself where it is written as text; the name as it stands if nobody knows it at run time."""
    if not isinstance(annotation, str):
        return annotation
    inner = inspect.unwrap(handler)
    inner = getattr(inner, "__func__", getattr(inner, "func", inner))
    namespace = getattr(inner, "__globals__", {})
    try:
        return eval(annotation, namespace)  # noqa: S307 - the program's own text, as typing does it
    except Exception:  # noqa: BLE001 - a name that is imported for the type checker only
        last = annotation.strip("'\"").rpartition(".")[2]
        return next((each for each in _GIVEN if each.__name__ == last), annotation)


def _fits(annotation: object, given: type) -> bool:
    """Whether what is `given` may be called that; what cannot be told fits."""
    if annotation in (inspect.Parameter.empty, Any) or isinstance(annotation, str | typing.TypeVar):
        return True
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(each, given) for each in typing.get_args(annotation))
    if origin is typing.Annotated:
        return _fits(typing.get_args(annotation)[0], given)
    if origin is None and isinstance(annotation, type):
        protocol = getattr(annotation, "_is_protocol", False)
        return protocol or issubclass(given, annotation) or issubclass(annotation, given)
    return origin is None and annotation is not None
