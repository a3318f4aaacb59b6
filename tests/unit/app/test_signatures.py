"""Which functions are handlers: what they may take, of one message or of several, and what is refused at import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import pytest

from jmsx import BatchError, Message, Session
from jmsx.app import App
from jmsx.app.parameters import parameters_of
from jmsx.errors import ConfigurationError
from jmsx.stores import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

URL: Final = "stomp://localhost"


class SingleStore(MemoryStore):
    """A store of somebody's that knows no batches."""

    once_each: Any = property()  # raises AttributeError when it is looked for


def plain(message: Message) -> None:
    """A handler."""


def both(message: Message, session: Session) -> None:
    """Both, in their order."""


def bare(message, session):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103 - as a program may have it
    pass


def vague(message: Any, session: object) -> None:
    """Anything."""


def maybe(message: Message | None, session: Annotated[Session, "mine"]) -> None:
    """In other words."""


def unknown_names(message: Elsewhere.Message, session: Elsewhere.Session) -> None:  # type: ignore[name-defined]  # noqa: F821 - no such names when the program runs
    """For the type checker only."""


@pytest.mark.parametrize("handler", [both, bare, vague, maybe, unknown_names])
def test_two_arguments(handler: Any) -> None:
    """Message and session."""
    assert parameters_of(handler).takes_session


def swapped(session: Session, message: Message) -> None:
    """The wrong way round."""


def one_session(session: Session) -> None:
    """Not without the message."""


def swapped_names(session: Elsewhere.Session, message: Elsewhere.Message) -> None:  # type: ignore[name-defined]  # noqa: F821 - no such names when the program runs
    """For the type checker only."""


def text(order: str) -> None:
    """Wants text."""


def nothing() -> None:
    """Wants nothing."""


def three(message: Message, session: Session, more: object) -> None:
    """Wants too much."""


def unannotated(session, order):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as a program may have it
    """Has them in the wrong order, and says so by its names only."""


def of_a_session(session: Message) -> None:
    """Its messages tell of sessions."""


def hidden_by_a_decorator(function: Any) -> Any:
    """It does not say what it wraps."""

    def inner(*given: Any) -> Any:
        return function(*given)

    return inner


class Shop:
    """A class with a handler in it."""

    def handle(self, message: Message) -> None:
        """A method."""

    @classmethod
    def of_all(cls, message: Message) -> None:
        """A method of the class."""


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        (swapped, "the message comes first, then the session"),
        (swapped_names, "the message comes first, then the session"),
        (one_session, "the message comes first, then the session"),
        (unannotated, "unannotated calls its first parameter session, and it gets a Message; the"),
        (lambda session, message: None, "the message comes first, then the session"),  # noqa: ARG005 - never called
        (lambda _session: None, "the message comes first, then the session"),
        (nothing, "must take"),
        (hidden_by_a_decorator(plain), "if a decorator has made it, have that use functools.wraps"),
        (three, "must take"),
        (lambda headers, body: None, "does not say what body is, and must take (message)"),  # noqa: ARG005 - stomp.py's of old
        (lambda body, message: None, "does not say what message is, and must take"),  # noqa: ARG005 - kombu's callback
        (Shop.handle, "is a method of no object yet"),
        (
            vars(Shop)["of_all"],
            "Shop.of_all is a class method of no class yet; register that of the",
        ),
    ],
)
def test_handlers_that_expect_something_else(handler: Any, complaint: str) -> None:
    """Are refused at import, and not message by message."""
    with pytest.raises(ConfigurationError) as caught:
        App(URL).consumer("a")(handler)
    assert complaint in str(caught.value)


# Batches -------------------------------------------------------------------------------------------------------------


def batch_of(messages: list[Message]) -> None:
    """Takes several."""


def sequence(messages: Sequence[Message], session: Session) -> None:
    """In other words, and the session."""


def bare_list(messages: list) -> None:  # type: ignore[type-arg]  # as a program may have it
    """Of whatever."""


def any_iterable(messages: Iterable[Message]) -> None:
    """A list is one."""


@pytest.mark.parametrize("handler", [batch_of, bare_list, bare, vague, any_iterable])
def test_a_handler_of_batches(handler: Any) -> None:
    """Is taken if it may get a list."""
    app = App(URL)
    app.consumer("a", batch=500, batch_timeout=0.5, prefetch=500, name="x")(handler)
    (consumer,) = app.consumers
    assert (consumer.batch, consumer.batch_timeout) == (500, 0.5)
    assert parameters_of(sequence, batch=True).takes_session


@pytest.mark.parametrize(
    ("handler", "settings", "complaint"),
    [
        (plain, {}, "says that message is a Message, and with batch= it gets a list[Message]"),
        (text, {}, "says that order is a str, and with batch= it gets a list[...]"),
        (swapped, {}, "says that session is a Session, and with batch="),
        (nothing, {}, "must take (messages) or (messages, session)"),
        (batch_of, {"batch": 0}, "batch must be 1 or more"),
        (batch_of, {"batch": "many"}, "batch must be a whole number, not a str"),
        (batch_of, {"batch_timeout": -1.0}, "batch_timeout must be"),
        (plain, {"batch": None, "batch_timeout": "2s"}, "batch_timeout='2s' is for handlers of"),
        (batch_of, {"batch_timeout": "soon"}, "batch_timeout='soon' is no duration; write"),
        (
            batch_of,
            {"prefetch": 9},
            "prefetch=9 is less than batch=10, so no batch would ever be",
        ),
        (batch_of, {"mode": "client"}, "with batch= the mode is auto, individual or transacted"),
        (batch_of, {"mode": "dups_ok"}, "with batch= the mode is auto, individual or transacted"),
        (batch_of, {"optimize_acknowledge": True}, "optimize_acknowledge is for one message"),
        (batch_of, {"dedupe": SingleStore()}, "SingleStore knows single messages only"),
    ],
)
def test_batches_that_make_no_sense(handler: Any, settings: dict[str, Any], complaint: str) -> None:
    """Are refused at import."""
    with pytest.raises(ConfigurationError) as caught:
        App(URL).consumer("a", **{"batch": 10, **settings})(handler)
    assert complaint in str(caught.value)
    assert str(caught.value).count("consumer ") <= 1


def test_a_list_is_for_batches() -> None:
    """A handler that takes one without batch= is told so."""
    with pytest.raises(ConfigurationError, match="for several at once say"):
        App(URL).consumer("a")(batch_of)  # type: ignore[type-var]  # which mypy sees, too


@pytest.mark.parametrize("failed", [[], ["text"], None, {Message("x"): "reason"}])
def test_a_batch_error_names_messages(failed: Any) -> None:
    """One at least, and what they failed with is an error."""
    with pytest.raises(ConfigurationError, match="names messages of the batch"):
        BatchError(failed)


def test_what_a_message_of_a_batch_failed_with() -> None:
    """What is said for it, or else the cause, or else the error."""
    first, second, cause = Message("1"), Message("2"), KeyError()
    error = BatchError({first: cause, second: ValueError()})
    assert error.failed == (first, second)
    assert error.error_of(first) is cause
    plainly = BatchError(one for one in [first])
    assert plainly.error_of(first) is plainly
    plainly.__cause__ = cause
    assert plainly.error_of(first) is cause


def test_a_message_may_be_called_session() -> None:
    """If it is annotated as what it is."""
    assert not parameters_of(of_a_session).takes_session


def test_the_method_of_an_object() -> None:
    """Is a handler."""
    assert not parameters_of(Shop().handle).takes_session
