"""What `@app.consumer(...)` and `App(...)` take, what they refuse, and what a consumer has of its app."""

from __future__ import annotations

import threading
from dataclasses import fields
from functools import partial
from http.client import HTTPException
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx import AcknowledgeMode, Connection, Message, RedeliveryPolicy
from jmsx.app import App
from jmsx.app.middleware import CallNext
from jmsx.config.options import (
    ConnectionOptions,
    ConsumerOptions,
    PrefetchPolicy,
    ReconnectPolicy,
    TlsOptions,
)
from jmsx.core.policy import RedeliveryPolicyMap
from jmsx.core.values import ConsumerSettings, OptimizeAcknowledge
from jmsx.errors import (
    ConfigurationError,
    ConnectionFailedError,
    IllegalStateError,
    InvalidClientIdError,
    InvalidDestinationError,
    JmsxError,
    RefusedError,
    SecurityError,
)
from jmsx.stores import MemoryStore
from jmsx.stores.ledger import DeliveryLedger
from jmsx.testing import FakeBrokerServer

if TYPE_CHECKING:
    from collections.abc import Callable

URL: Final = "stomp://localhost"

#: A value for each option that is not its default; a new option must be named here.
OTHER: Final[dict[str, Any]] = {
    "client_id": "me",
    "username": "u",
    "password": "p",
    "credentials": lambda: ("u", "p"),
    "prefetch_policy": PrefetchPolicy.all(7),
    "redelivery_policy": RedeliveryPolicy(maximum_redeliveries=3),
    "redelivery_policies": RedeliveryPolicyMap(RedeliveryPolicy(maximum_redeliveries=9)),
    "optimize_acknowledge": True,
    "optimize_acknowledge_timeout": 1.0,
    "optimized_ack_scheduled_ack_interval": 1.0,
    "non_blocking_redelivery": True,
    "transacted_individual_ack": True,
    "use_async_send": True,
    "dead_letter": "queue://dead",
    "use_management": False,
    "ledger": "x.db",
    "dialect": "classic",
    "heartbeat": (1.0, 2.0),
    "connect_timeout": 3.0,
    "request_timeout": 4.0,
    "reconnect": ReconnectPolicy(maximum_delay=5.0),
    "commit_markers": True,
    "resend_unconfirmed": True,
    "max_body_size": 5,
    "tls": TlsOptions(server_name="x"),
}


def plain(message: Message) -> None:
    """A handler."""


async def awaited(message: Message) -> str:
    """No key, but what becomes one when it is awaited."""
    return message.text


def made(query: str = "", *, options: dict[str, Any], **settings: Any) -> ConsumerSettings:
    """What a consumer with `settings` comes to in an app with `options` and the `query` of its URL."""
    with FakeBrokerServer() as broker:
        app = App(f"{broker.url}{query}", **options)
        app.consumer("topic://a" if "durable" in settings else "a", **settings)(plain)
        app.start()
        try:
            (worker,) = app._service.workers
            assert worker._connection.options.client_id == (
                options.get("client_id") if "durable" in settings else None
            )
            found = worker._link.engine.core.consumer_settings("1")
            assert found is not None
            return found
        finally:
            app.abort()


# What a consumer has of its app --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [each.name for each in fields(ConnectionOptions)])
def test_the_connections_of_an_app_have_its_options(name: str) -> None:
    """Each of them."""
    given = {name: OTHER[name]}
    url = "stomp+ssl://localhost" if name == "tls" else URL
    reconnect = given.pop("reconnect", True)
    app = App(url, reconnect=reconnect, **given)
    assert getattr(app.connection_uri().options, name) == OTHER[name]


#: What the options of an app mean to a consumer, by their names there: of a queue, in AUTO mode.
MEANT: Final[dict[str, Any]] = {
    "prefetch_policy": ("prefetch", 7),
    "redelivery_policy": ("policy", RedeliveryPolicy(maximum_redeliveries=3)),
    "redelivery_policies": ("policy", RedeliveryPolicy(maximum_redeliveries=9)),
    "optimize_acknowledge": ("optimize", OptimizeAcknowledge()),
    "non_blocking_redelivery": ("non_blocking_redelivery", True),
    "dead_letter": ("dead_letter", "queue://dead"),
}

#: The decorator's, which win, and what they mean.
OWN: Final[dict[str, Any]] = {
    "prefetch": (3, "prefetch", 3),
    "redelivery": (
        RedeliveryPolicy(maximum_redeliveries=1),
        "policy",
        RedeliveryPolicy(maximum_redeliveries=1),
    ),
    "dead_letter": ("/queue/mine", "dead_letter", "queue://mine"),
    "non_blocking_redelivery": (False, "non_blocking_redelivery", False),
    "optimize_acknowledge": (False, "optimize", None),
}


@pytest.mark.parametrize("name", MEANT)
def test_a_consumer_has_the_options_of_its_app(name: str) -> None:
    """Where its decorator says nothing else."""
    field, meant = MEANT[name]
    assert getattr(made(options={name: OTHER[name]}), field) == meant


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("more", [{}, {"durable": "d"}])
def test_an_app_spells_them_as_its_consumers_do(name: str, more: dict[str, Any]) -> None:
    """Whatever a consumer may leave to its app has the same name there."""
    given, field, meant = OWN[name]
    assert getattr(made(options={"client_id": "me", name: given}, **more), field) == meant


def test_the_decorator_has_each_option_of_a_consumer() -> None:
    """`redelivery` is its name for the policy."""
    names = {one.name for one in fields(ConsumerOptions)} - {"redelivery_policy"}
    assert {*names, "redelivery"} == set(OWN)


def test_what_the_decorator_says_wins_over_what_is_spelt_alike() -> None:
    """The prefetch and the policy of the app are for the others."""
    other, policy = RedeliveryPolicy(maximum_redeliveries=3), OWN["redelivery"][0]
    found = made(options={"prefetch": 7, "redelivery": other}, prefetch=3, redelivery=policy)
    assert (found.prefetch, found.policy) == (3, policy)


def test_a_consumer_has_the_options_of_the_url() -> None:
    """Too."""
    query = "?jms.prefetchPolicy.all=7&jms.redeliveryPolicy.maximumRedeliveries=3"
    found = made(query, options={})
    assert (found.prefetch, found.policy.maximum_redeliveries) == (7, 3)


def test_what_the_decorator_says_wins() -> None:
    """Over the app's options, and over its URL's; also for a durable subscription."""
    query = "?jms.prefetchPolicy.all=7&jms.redeliveryPolicy.maximumRedeliveries=4"
    options = {name: OTHER[name] for name in MEANT}
    own = {name: given for name, (given, _, _) in OWN.items()}
    for more in ({}, {"durable": "d"}):
        found = made(query, options={"client_id": "me", **options}, **own, **more)
        for _, field, meant in OWN.values():
            assert getattr(found, field) == meant


def test_every_option_of_a_consumer_is_passed_on() -> None:
    """Whatever `ConsumerOptions` gets, the decorator has."""
    app = App(URL)
    app.consumer("a", **{name: given for name, (given, _, _) in OWN.items()})(plain)
    (consumer,) = app.consumers
    assert [each.name for each in fields(ConsumerOptions)] == [
        "redelivery_policy" if name == "redelivery" else name for name in OWN
    ]
    assert None not in [getattr(consumer.options, each.name) for each in fields(ConsumerOptions)]


@pytest.mark.parametrize(
    ("source", "dead_letter"),
    [
        ("queue://a", "queue://a"),
        ("a?consumer.prefetchSize=1", "/queue/a"),
        ("queue://orders.>", "queue://orders.dead"),
        ("queue://orders.*", "queue://orders.dead"),
        ("queue://#", "queue://orders.dead"),
        ("queue://b,queue://a", "queue://a"),
    ],
)
def test_dead_letters_go_elsewhere(source: str, dead_letter: str) -> None:
    """A consumer that gets its own dead letters fails for ever."""
    app = App(URL)
    with pytest.raises(ConfigurationError, match="is read by this consumer of"):
        app.consumer(source, dead_letter=dead_letter)(lambda _message: None)
    app.consumer(source, dead_letter="queue://elsewhere.x.y" if "#" not in source else "safe")(
        lambda _message: None
    )


def test_a_durable_subscription_needs_a_client_id() -> None:
    """Which is said at the start, and not when there is a broker at last; it may stand in the URL."""
    app = App("stomp://127.0.0.1:1", reconnect=False)
    app.consumer("topic://a", durable="d", name="desk")(lambda _message: None)
    with pytest.raises(ConfigurationError, match=r"consumer desk: .* needs a client_id, the same"):
        app.start()
    app = App("stomp://127.0.0.1:1?jms.clientID=c", reconnect=False)
    app.consumer("topic://a", durable="d", name="desk")(lambda _message: None)
    with pytest.raises(ConnectionFailedError):
        app.start()


def test_a_durable_subscription_has_one_reader() -> None:
    """A second one is refused where it is registered, and where a setting would make one."""
    app = App(URL, client_id="shop")
    app.consumer("topic://a", durable="d", name="desk")(lambda _message: None)
    with pytest.raises(
        ConfigurationError, match="consumer till: durable='d' is read by consumer desk"
    ):
        app.consumer("topic://b", durable="d", name="till")(lambda _message: None)
    app.consumer("topic://b", durable="e", name="till")(lambda _message: None)
    with pytest.raises(
        ConfigurationError, match="consumer till: durable='d' is read by consumer desk"
    ):
        app.change("till", durable="d")
    app.change("till", durable="e", prefetch=5)
    assert [one.durable for one in app.consumers] == ["d", "e"]


def test_sessions_do_not_share_a_topic() -> None:
    """Each would get every message, and handle it."""
    with pytest.raises(
        ConfigurationError, match=r"with concurrency=3 each would be handled so often; s"
    ):
        App(URL).consumer("topic://a", concurrency=3)(plain)
    App(URL).consumer("topic://a")(plain)


def test_a_client_id_that_the_app_itself_has() -> None:
    """On Classic, which lets it have one connection; the error names who has it. Artemis does not mind."""
    for kind in ("classic", "artemis"):
        with FakeBrokerServer(kind) as broker:
            app = App(broker.url, client_id="shop", use_management=False)
            for name in ("desk", "till"):
                app.consumer(f"topic://{name}", durable=name, name=name)(lambda _message: None)
            if kind == "classic":
                with pytest.raises(
                    InvalidClientIdError, match=r"consumer till: .* consumer desk of"
                ):
                    app.start()
                app.abort()
            else:
                with app:
                    assert app.ready().ok


def test_a_topic_is_not_its_dead_letter_queue() -> None:
    """Of the same name."""
    App(URL).consumer("topic://a", dead_letter="queue://a")(lambda _message: None)


@pytest.mark.parametrize("source", ["temp-queue://x", "/temp-topic/x", "queue://a,temp-queue://x"])
def test_a_temporary_destination_has_no_consumer(source: str) -> None:
    """Only who made it may read it, and no decorator did."""
    with pytest.raises(ConfigurationError, match="is temporary, and only the session that made it"):
        App(URL).consumer(source)(lambda _message: None)


# Sending -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "body"),
    [
        ("hello world", "queue://x"),
        ("orders", "topic://x.y"),
        ("hello", "/queue/x"),
        ("7", "temp-queue://x"),
    ],
)
def test_destination_and_body_in_the_wrong_order(to: str, body: str) -> None:
    """It would be a new queue of that name, which nobody reads."""
    with pytest.raises(ConfigurationError, match="takes the destination first, then the body"):
        App(URL).send(to, body)


@pytest.mark.parametrize(
    ("to", "body"),
    [
        ("queue://orders", "queue://x"),
        ("/queue/orders", "queue://x"),
        ("orders", "queue://x is full"),
        ("orders", "see queue://x"),
        ("orders", "/queue"),
        ("orders", "queue"),
        ("orders", b"queue://x"),
        ("orders", Message("queue://x")),
    ],
)
def test_a_body_that_tells_of_a_destination(to: str, body: Any) -> None:
    """Is sent; here there is no broker's URL to send it to."""
    with pytest.raises(ConfigurationError, match="has no broker URL"):
        App().send(to, body)


class Watcher:
    """Observes nothing."""

    def observe(self, event: object, source: object) -> None:
        """Not."""

    def close(self) -> None:
        """Nothing."""


def test_observers_may_be_any_iterable() -> None:
    """Of what observes, given once or added later; a class is none in either place."""
    app = App(URL, observers=iter([Watcher()]))
    app.observe(Watcher())
    with pytest.raises(ConfigurationError, match="write Watcher"):
        app.observe(Watcher)  # type: ignore[arg-type]  # the refusal is what is tested


def test_observers_may_be_proxies() -> None:
    """Whose methods are found when they are asked for."""

    class Proxy:
        def __getattr__(self, name: str) -> Any:
            return getattr(watcher, name)

    watcher = Watcher()
    App(URL, observers=[Proxy()]).abort()


# Options -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"prefech": 1}, "did you mean 'prefetch'"),
        ({"observer": ()}, "did you mean 'observers'"),
        ({"login": "x"}, "did you mean 'username'"),
        ({"passcode": "x"}, "did you mean 'password'"),
        ({"batch": 500}, "unknown option of App 'batch'; write @app.consumer(..., batch=...)"),
        ({"name": "shop"}, "write @app.consumer(..., name=...)"),
        ({"mode": "transacted"}, "write @app.consumer(..., mode=...)"),
        ({"redelivery": 3}, "redelivery must be a RedeliveryPolicy, not an int; did you mean"),
        ({"redelivry": 3}, "did you mean 'redelivery'"),
        ({"max_retries": 3}, "did you mean 'redelivery'"),
        (
            {"redelivery": RedeliveryPolicy(), "redelivery_policy": RedeliveryPolicy()},
            "redelivery= and redelivery_policy= say the same; give one of them",
        ),
        ({"prefetch": 0}, "prefetch must be 1 or more, not 0"),
        (
            {"prefetch": 1, "prefetch_policy": PrefetchPolicy()},
            "prefetch= and prefetch_policy= say the same; give one of them",
        ),
        ({"metrics": 1}, "there are broker_stats, "),
        (
            {"dead_letter": None},
            "dead_letter must be safe, broker or a destination, not a NoneType",
        ),
        ({"dead_letter": "nowhere"}, "neither one of safe, broker nor like queue://NAME"),
        ({"dead_letter": "queue//x"}, "write queue://x"),
        ({"redelivery_policy": 3}, "redelivery_policy must be a RedeliveryPolicy, not an int"),
        ({"redelivery_policy": RedeliveryPolicy}, "not a type; write RedeliveryPolicy(...)"),
        ({"redelivery_policies": {}}, "must be a RedeliveryPolicyMap or None, not a dict"),
        ({"health_limits": 5}, "health_limits must be HealthLimits(...), not an int"),
        ({"reconnect": 3}, "reconnect must be True, False or a ReconnectPolicy, not an int"),
        (
            {"observers": 3},
            "observers must be a list of objects with methods observe(event, source)",
        ),
        ({"observers": "log"}, "observers must be a list of objects with methods"),
        (
            {"observers": [3]},
            "an observer must be an object with methods observe(event, source) and",
        ),
        ({"observers": [Watcher]}, "observer Watcher is a class; write Watcher(...)"),
        ({"ledger": 3}, "ledger must be a path or a DeliveryLedger, not an int"),
        (
            {"ledger": SimpleNamespace(begin=print, finish=print)},
            "must be a path or a DeliveryLedger",
        ),
        ({"ledger": DeliveryLedger}, "ledger must be a path or a DeliveryLedger, not a type"),
        ({"dialect": "rabbit"}, "unknown dialect 'rabbit'; there are artemis, classic"),
        ({"dialect": "clasic"}, "unknown dialect 'clasic'; did you mean 'classic'?"),
        ({"dialect": 3}, "dialect must be a str, not an int"),
        ({"health": "x:y"}, "'x:y' is not an address to serve at; write HOST:PORT or PORT"),
        ({"health": 8080}, "health must be a str, not an int"),
        ({"url": "http://x"}, "is not a STOMP broker"),
        ({"url": f"{URL}?heartbeat=1"}, "unknown option 'heartbeat'; there are "),
    ],
)
def test_an_app_that_makes_no_sense(options: dict[str, Any], complaint: str) -> None:
    """Is refused when it is made."""
    with pytest.raises(JmsxError) as caught:
        App(**{"url": URL, **options})
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"retry_on": OSError, "redelivery_for": {ConnectionError: RedeliveryPolicy()}},
        {"retry_on": ConnectionError, "redelivery_for": {OSError: RedeliveryPolicy()}},
        {"retry_on": OSError, "redelivery_for": {JmsxError: RedeliveryPolicy()}},
        {"retry_on": OSError, "redelivery_for": {SystemExit: RedeliveryPolicy()}},
        {"retry_on": OSError, "redelivery_for": {RefusedError: RedeliveryPolicy()}},
        {"retry_on": ConnectionError, "redelivery_for": {HTTPException: RedeliveryPolicy()}},
        {"give_up_on": ConnectionError, "redelivery_for": {OSError: RedeliveryPolicy()}},
    ],
)
def test_policies_for_what_is_retried(settings: dict[str, Any]) -> None:
    """
    A policy by error beside `retry_on` and `give_up_on`, which leave some of those errors to it.

    Of the refusals a rolled back transaction is retried, and http.client's RemoteDisconnected is a ConnectionError.
    """
    App(URL).consumer("a", **settings)(plain)


def test_settings_are_changed_as_they_are_given() -> None:
    """A mode by its name, a destination by its URI, and a batch for a handler that takes one."""
    app = App(URL)
    app.consumer("a", name="ship")(plain)
    app.change("ship", mode="transacted", destination="topic://b", concurrency=1)
    [changed] = app.consumers
    assert changed.mode is AcknowledgeMode.SESSION_TRANSACTED
    assert changed.destination.uri == "topic://b"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda app: app.change("shop", mode="client"), "no consumer 'shop'; there are ship"),
        (lambda app: app.change(["ship"], mode="client"), "no consumer ['ship']"),
        (lambda app: app.change("ship", mode="clinet"), "did you mean 'client'?"),
        (lambda app: app.change("ship", destination="temp-queue://t"), "temp-queue://t"),
        (lambda app: app.change("ship", batch=5), "with batch= it gets a list[Message]"),
        (lambda app: app.change("ship", handler=plain), "app.replace_handler(...)"),
        (lambda app: app.change("ship", dead_letter=None), "dead_letter=None says nothing"),
        (lambda app: app.replace_handler("ship", 1), "1"),
        (lambda app: app.replace_handler("ship", awaited), "is a plain function"),
    ],
)
def test_a_change_that_makes_no_sense(change: Callable[[Any], None], complaint: str) -> None:
    """Is refused when it is made, and changes nothing."""

    def around(message: Message, call_next: CallNext) -> object:
        return call_next(message)

    app = App(URL, middleware=[around])
    app.consumer("a", name="ship")(plain)
    before = app.consumers
    with pytest.raises(JmsxError) as caught:
        change(app)
    assert complaint in str(caught.value)
    assert app.consumers == before


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"redelivry": 1}, "did you mean 'redelivery'"),
        ({"redelivery_policy": RedeliveryPolicy()}, "did you mean 'redelivery'?"),
        ({"prefetch_policy": PrefetchPolicy()}, "did you mean 'prefetch'?"),
        ({"ack": "client"}, "did you mean 'mode'"),
        ({"workers": 1}, "unknown consumer setting 'workers'"),
        ({"redelivery": RedeliveryPolicy}, "not a type; write RedeliveryPolicy(...)"),
        ({"redelivery": 3}, "did you mean RedeliveryPolicy(maximum_redeliveries=3)?"),
        ({"redelivery": RedeliveryPolicyMap()}, "App(redelivery_policies=...)"),
        ({"mode": "clinet"}, "unknown mode 'clinet'; did you mean 'client'?"),
        ({"mode": "scheduled"}, "write redelivery=RedeliveryPolicy(mode='scheduled')"),
        ({"mode": 17}, "mode must be an AcknowledgeMode, not an int"),
        ({"mode": True}, "mode must be an AcknowledgeMode, not a bool"),
        ({"mode": None}, "mode must be an AcknowledgeMode, not a NoneType"),
        ({"dead_letter": None}, "dead_letter=None says nothing"),
        ({"dead_letter": "saef"}, "neither one of safe, broker"),
        ({"concurrency": "2-8"}, "concurrency must be a whole number, not a str"),
        ({"concurrency": 0}, "concurrency must be 1 or more, not 0"),
        ({"prefetch": 2**31}, "prefetch must be 1 or more and at most 2147483647, not 2147483648"),
        ({"prefetch": "10"}, "prefetch must be a whole number, not a str"),
        ({"give_up_on": ValueError("x")}, "give_up_on takes classes of errors"),
        ({"give_up_on": ("ValueError",)}, "give_up_on takes classes of errors"),
        (
            {"give_up_on": LookupError, "redelivery_for": {KeyError: RedeliveryPolicy()}},
            "a policy for KeyError, which is a dead letter at once: give_up_on=(LookupError) has it",
        ),
        (
            {"retry_on": (OSError, ValueError), "redelivery_for": {KeyError: RedeliveryPolicy()}},
            "a policy for KeyError, which is a dead letter at once: retry_on=(OSError, ValueError) has it not",
        ),
        (
            {"retry_on": OSError, "redelivery_for": {SecurityError: RedeliveryPolicy()}},
            "a policy for SecurityError, which is a dead letter at once: retry_on=(OSError) has it not",
        ),
        ({"selector": 1}, "selector must be a str, not an int"),
        ({"durable": "d"}, "queue://a is no topic"),
        ({"dedupe": "done.db"}, "such as jmsx.stores.SqliteStore('done.db'), not a str"),
        ({"dedupe": MemoryStore}, "dedupe must be a store, such as"),
        ({"dedupe": MemoryStore(), "dedupe_by": "order"}, "dedupe_by must be a function"),
        ({"dedupe": MemoryStore(), "dedupe_by": awaited}, "awaited is an async function, so its"),
        ({"dedupe": MemoryStore(), "dedupe_by": lambda: 1}, "must take (message)"),
        ({"optimize_acknowledge": 1}, "optimize_acknowledge must be True or False"),
        ({"name": 3}, "must be a text, not 3"),
    ],
)
def test_a_consumer_that_makes_no_sense(settings: dict[str, Any], complaint: str) -> None:
    """Is refused at import."""
    with pytest.raises(ConfigurationError) as caught:
        App(URL).consumer("a", **settings)(plain)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("mode", ["client", "CLIENT_ACKNOWLEDGE", "client_acknowledge", 2])
def test_modes_by_name(mode: Any) -> None:
    """Where it is one mode only."""
    app = App(URL)
    app.consumer("a", mode=mode)(plain)
    assert app.consumers[0].mode is AcknowledgeMode.CLIENT_ACKNOWLEDGE


@pytest.mark.parametrize("given", [ValueError, (ValueError,), [ValueError], {ValueError}])
def test_one_error_or_several(given: Any) -> None:
    """However they are held together."""
    app = App(URL)
    app.consumer("a", give_up_on=given)(plain)
    assert app.consumers[0].give_up_on == (ValueError,)


def test_a_decorator_without_parentheses() -> None:
    """The name would be an inner function, and there would be no consumer."""
    with pytest.raises(
        ConfigurationError, match=r"write @app.consumer\('queue://NAME'\) above plain"
    ):
        App(URL).consumer(plain)  # type: ignore[call-overload]  # the refusal is what is tested


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ((plain,), "write app.consumer('queue://a')(plain), or @app.consumer('queue://a') above"),
        (("transacted",), "settings by name, such as mode='transacted', not 'transacted'"),
        (("queue://b",), "several destinations have a consumer each"),
    ],
)
def test_more_than_a_destination_by_position(given: tuple[Any, ...], complaint: str) -> None:
    """It says how it is written."""
    with pytest.raises(ConfigurationError) as caught:
        App(URL).consumer("queue://a", *given)
    assert complaint in str(caught.value)


def test_more_than_a_url_by_position() -> None:
    """As others take a user and a password; the sentence says how it is written, and not which."""
    makers: dict[str, Callable[..., object]] = {
        "App": partial(App, URL),
        "Connection": partial(Connection, URL),
        "connect()": App(URL).connect,
    }
    for name, make in makers.items():
        with pytest.raises(ConfigurationError) as caught:
            make("me", "secret")
        assert str(caught.value) == (
            f"{name} takes its options by name, such as username=..., password=..."
        )


def test_no_destination() -> None:
    """The parentheses are there, and nothing is in them."""
    with pytest.raises(InvalidDestinationError, match="is not a destination"):
        App(URL).consumer()  # type: ignore[call-overload]  # the refusal is what is tested


def test_unfit_sources() -> None:
    """At once, and not when the function comes."""
    for source in (17, None, "queue//x", "que://x"):
        with pytest.raises(InvalidDestinationError):
            App(URL).consumer(source)  # type: ignore[arg-type]  # the refusal is what is tested


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("headers", "did you mean 'properties'"),
        ("countdown", "did you mean 'delay'"),
        ("group_id", "did you mean 'group'"),
        ("ttl", "did you mean 'expires'"),
        ("time_to_live", "did you mean 'expires'"),
        ("prioritty", "did you mean 'priority'"),
        ("xyz", "there are confirm, correlation_id"),
    ],
)
def test_unknown_send_options(option: str, complaint: str) -> None:
    """Say where what is meant belongs."""
    with pytest.raises(ConfigurationError, match=complaint):
        App(URL).send("a", "x", **{option: 1})  # type: ignore[arg-type]  # the refusal is what is tested


def test_run_in_another_thread() -> None:
    """It names what to use instead."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            App(URL).run()
        except IllegalStateError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "use start() and stop()" in str(errors)
