"""Broker and destination URIs, with options as Java users write them."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

import jmsx
from jmsx.app import App
from jmsx.config.options import ConnectionOptions, PrefetchPolicy, ReconnectPolicy, TlsOptions
from jmsx.config.uri import BrokerAddress, parse_broker_uri
from jmsx.core.destination_names import parse_destination
from jmsx.core.policy import ArtemisRedeliveryPolicy, RedeliveryPolicy
from jmsx.errors import ConfigurationError, InvalidDestinationError

SECRET = "geheim"  # noqa: S105 - what must not be shown


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("stomp://h:1", "h:1"),
        ("stomp://h", "h:61613"),
        ("tcp://h:1", "h:1"),
        ("stomp+nio://h:1", "h:1"),
        ("h:1", "h:1"),
        ("h", "h:61613"),
        ("stomp://[::1]:7", "[::1]:7"),
        ("stomp://[fe80::1%eth0.2]:7", "[fe80::1%eth0.2]:7"),
        ("stomp://[fe80::1%25eth0]:7", "[fe80::1%eth0]:7"),
        (" stomp://h:1 ", "h:1"),
        ("stomp://u:p@h:1", "h:1"),
        ("failover:(stomp://a:1,stomp://b:2)", "a:1,b:2"),
        ("failover:( stomp://a:1 , stomp://b:2 )", "a:1,b:2"),
        ("failover://(stomp://a:1,stomp://b:2)", "a:1,b:2"),
        ("failover:stomp://a:1,stomp://b:2", "a:1,b:2"),
        ("failover:(a,b)?randomize=false", "a:61613,b:61613"),
        ("failover:(stomp://a:1?jms.clientID=x,stomp://b:2)", "a:1,b:2"),
        ("stomp://h:1/", "h:1"),
        ("STOMP://h:1", "h:1"),
        ("stomp+ssl://h", "h:61612"),
        ("stomp://u:p#/@x@h:1", "h:1"),
    ],
)
def test_brokers_in_order(text: str, addresses: str) -> None:
    """One or several; the port is STOMP's where none is named."""
    assert str(parse_broker_uri(text)) == addresses


@pytest.mark.parametrize(
    ("text", "tls"),
    [
        ("stomp://h", [False]),
        ("tcp://h", [False]),
        ("nio://h", [False]),
        ("ssl://h:1", [True]),
        ("stomp+ssl://h:1", [True]),
        ("stomp+nio+ssl://h:1", [True]),
        ("nio+ssl://h:1", [True]),
        ("failover:(stomp://a,stomp+ssl://b)", [False, True]),
    ],
)
def test_schemes_of_tls(text: str, tls: list[bool]) -> None:
    """Java's words for it are understood as well."""
    assert [address.tls for address in parse_broker_uri(text).addresses] == tls


def test_address_of_ipv6_can_be_written_again() -> None:
    """With brackets, so that the port can be told from the address."""
    assert parse_broker_uri("stomp://[::1]:7").addresses == (BrokerAddress("::1", 7),)


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("jms.clientID=c", "client_id", "c"),
        ("jms.userName=u", "username", "u"),
        ("jms.password=p%26q", "password", "p&q"),
        ("jms.optimizeAcknowledge=true", "optimize_acknowledge", True),
        ("jms.optimizeAcknowledge=FALSE", "optimize_acknowledge", False),
        ("jms.optimizeAcknowledgeTimeOut=250", "optimize_acknowledge_timeout", 0.25),
        ("jms.optimizedAckScheduledAckInterval=1500", "optimized_ack_scheduled_ack_interval", 1.5),
        ("jms.nonBlockingRedelivery=true", "non_blocking_redelivery", True),
        ("jms.transactedIndividualAck=true", "transacted_individual_ack", True),
        ("jms.useAsyncSend=true", "use_async_send", True),
        ("jms.connectResponseTimeout=500", "connect_timeout", 0.5),
        ("jms.connectResponseTimeout=0", "connect_timeout", None),
        ("jms.sendTimeout=2000", "request_timeout", 2.0),
        ("jms.sendTimeout=0", "request_timeout", None),
        ("jms.sendTimeout=-1", "request_timeout", None),
        ("wireFormat.maxFrameSize=1000", "max_body_size", 1000),
        ("jms.prefetchPolicy.queuePrefetch=1", "prefetch_policy", PrefetchPolicy(queue=1)),
        (
            "jms.prefetchPolicy.queueBrowserPrefetch=2",
            "prefetch_policy",
            PrefetchPolicy(queue_browser=2),
        ),
        ("jms.prefetchPolicy.topicPrefetch=3", "prefetch_policy", PrefetchPolicy(topic=3)),
        (
            "jms.prefetchPolicy.durableTopicPrefetch=4",
            "prefetch_policy",
            PrefetchPolicy(durable_topic=4),
        ),
        ("jms.prefetchPolicy.all=5", "prefetch_policy", PrefetchPolicy.all(5)),
    ],
)
def test_option_of_the_connection(option: str, field: str, value: object) -> None:
    """Java's names; times in milliseconds become seconds."""
    options = parse_broker_uri(f"stomp://h?{option}").options
    assert getattr(options, field) == value


@pytest.mark.parametrize(
    ("option", "fields"),
    [
        ("maximumRedeliveries=-1", {"maximum_redeliveries": -1}),
        ("initialRedeliveryDelay=0", {"initial_redelivery_delay": 0}),
        ("redeliveryDelay=1500", {"redelivery_delay": 1.5}),
        ("useExponentialBackOff=true", {"use_exponential_back_off": True}),
        ("backOffMultiplier=2.5", {"back_off_multiplier": 2.5}),
        ("maximumRedeliveryDelay=60000", {"maximum_redelivery_delay": 60.0}),
        ("maximumRedeliveryDelay=-1", {"maximum_redelivery_delay": None}),
        ("useCollisionAvoidance=true", {"use_collision_avoidance": True}),
        ("collisionAvoidancePercent=20", {"collision_avoidance_factor": 0.2}),
        ("preDispatchCheck=false", {"pre_dispatch_check": False}),
    ],
)
def test_option_of_the_redelivery_policy(option: str, fields: dict[str, Any]) -> None:
    """Source: the setters of `RedeliveryPolicy.java`; the percentage is one there too."""
    options = parse_broker_uri(f"stomp://h?jms.redeliveryPolicy.{option}").options
    assert options.redelivery_policy == RedeliveryPolicy(**fields)


@pytest.mark.parametrize(
    ("option", "fields"),
    [
        ("randomize=false", {"randomize": False}),
        ("initialReconnectDelay=20", {"initial_delay": 0.02}),
        ("maxReconnectDelay=5000", {"maximum_delay": 5.0}),
        ("useExponentialBackOff=false", {"use_exponential_back_off": False}),
        ("backOffMultiplier=3", {"back_off_multiplier": 3.0}),
        ("maxReconnectAttempts=4", {"maximum_attempts": 4}),
        ("timeout=3000", {"timeout": 3.0}),
        ("timeout=-1", {"timeout": -1.0}),
        ("maxReconnectAttempts=-1", {"maximum_attempts": -1}),
    ],
)
def test_option_of_failover(option: str, fields: dict[str, Any]) -> None:
    """Source: the setters of `FailoverTransport.java`."""
    options = parse_broker_uri(f"failover:(stomp://a)?{option}").options
    assert options.reconnect == ReconnectPolicy(**fields)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ("tls.caFile=/a.pem", {"ca_file": "/a.pem"}),
        (
            "tls.keyPassword=p%26q&tls.keyFile=k&tls.certificateFile=c",
            {"certificate_file": "c", "key_file": "k", "key_password": "p&q"},
        ),
        ("tls.verifyHostName=false", {"verify_hostname": False}),
        ("socket.verifyHostName=false", {"verify_hostname": False}),
        ("tls.serverName=mq", {"server_name": "mq"}),
    ],
)
def test_option_of_tls(options: str, fields: dict[str, Any]) -> None:
    """In any order; over what the program gives."""
    assert parse_broker_uri(f"ssl://h?{options}").options.tls == TlsOptions(**fields)
    given = ConnectionOptions(tls=TlsOptions(ca_file="program", server_name="s"))
    told = parse_broker_uri(f"failover:(ssl://h)?{options}", given).options.tls
    assert told == TlsOptions(**{"ca_file": "program", "server_name": "s", **fields})


def test_failover_reconnects_and_a_plain_uri_does_not() -> None:
    """As in Java: a lost connection stays lost unless it is asked for."""
    assert parse_broker_uri("stomp://h").options.reconnect is None
    assert parse_broker_uri("failover:(stomp://h)").options.reconnect == ReconnectPolicy()


def test_options_add_up() -> None:
    """Each changes one field and leaves the others; those of a nested URI count too; the outer ones win."""
    options = parse_broker_uri(
        "failover:(stomp://a?jms.clientID=inner&jms.userName=u,stomp://b)"
        "?jms.clientID=outer&jms.redeliveryPolicy.maximumRedeliveries=4"
        "&jms.redeliveryPolicy.redeliveryDelay=7000&jms.prefetchPolicy.queuePrefetch=9"
    ).options
    assert (options.client_id, options.username) == ("outer", "u")
    assert options.redelivery_policy == RedeliveryPolicy(
        maximum_redeliveries=4, redelivery_delay=7.0
    )
    assert options.prefetch_policy == PrefetchPolicy(queue=9)


@pytest.mark.parametrize("dead_letter", ["safe", "broker", "queue://orders.dead", "/queue/dead"])
def test_dead_letter(dead_letter: str) -> None:
    """A strategy, or a queue for copies."""
    assert parse_broker_uri("h", ConnectionOptions(dead_letter=dead_letter)).addresses


@pytest.mark.parametrize("dead_letter", ["", "brokr", "orders.dead", "quue://x", "queue://"])
def test_dead_letter_to_nowhere_is_refused(dead_letter: str) -> None:
    """Before the first message dies."""
    with pytest.raises((ConfigurationError, InvalidDestinationError)):
        parse_broker_uri("h", ConnectionOptions(dead_letter=dead_letter))


@pytest.mark.parametrize(
    "dead_letter",
    [
        *("topic://dead", "/topic/dead", "topic:dead", "temp-queue://dead", "temp-topic://dead"),
        *("queue://a,queue://b", "queue://a,b", "queue://a,topic://b"),
        *("queue://dead.>", "queue://dead.*", "queue://dead.#", "remote-temp-queue://dead"),
    ],
)
def test_dead_letters_want_one_queue(dead_letter: str) -> None:
    """A topic without a subscriber would drop them, and the original would be acknowledged."""
    for door in (
        lambda: parse_broker_uri("h", ConnectionOptions(dead_letter=dead_letter)),
        lambda: jmsx.Connection("stomp://h", dead_letter=dead_letter),
        lambda: App("stomp://h", dead_letter=dead_letter),
        lambda: App(dead_letter=dead_letter),
        lambda: App("stomp://h").connect(dead_letter=dead_letter),
        lambda: App("stomp://h").consumer("queue://a", dead_letter=dead_letter)(print_text),
    ):
        with pytest.raises(ConfigurationError, match="is not one queue"):
            door()


def print_text(message: jmsx.Message) -> None:
    """A handler."""


def test_what_the_uri_says_wins() -> None:
    """Over the options that the program gives; the rest of them stays."""
    given = ConnectionOptions(client_id="program", username="u", password=SECRET)
    options = parse_broker_uri("stomp://h?jms.clientID=uri", given).options
    assert (options.client_id, options.username, options.password) == ("uri", "u", SECRET)


def test_user_and_password_before_the_host() -> None:
    """Percent-encoded; a user without a password keeps the one that was given."""
    options = parse_broker_uri("stomp://me%40work:p%3Aq@h").options
    assert (options.username, options.password) == ("me@work", "p:q")
    options = parse_broker_uri("stomp://other@h", ConnectionOptions(password=SECRET)).options
    assert (options.username, options.password) == ("other", SECRET)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("stomp://h?jms.optimizeAcknowlege=true", "did you mean 'jms.optimizeAcknowledge'"),
        ("stomp://h?jms.prefetchpolicy.all=1", "did you mean 'jms.prefetchPolicy.all'"),
        (
            "stomp://h?jms.redeliveryPolicy.maxRedeliveries=1",
            "did you mean 'jms.redeliveryPolicy.maximumRedeliveries'",
        ),
        ("failover:(a)?randomise=true", "did you mean 'randomize'"),
        ("failover:(a?zzz=1)", "unknown option 'zzz'"),
    ],
)
def test_unknown_option_names_the_nearest(text: str, complaint: str) -> None:
    """A typing mistake is found at once, and not after the first lost message."""
    with pytest.raises(ConfigurationError, match=complaint):
        parse_broker_uri(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no host"),
        ("stomp://", "no host"),
        ("stomp:///path", "no host"),
        ("stomp://h:1/path", "no host"),
        ("stomp://h h", "no host"),
        ("stomp://[h]:1", "no host"),
        ("failover:()", "no broker"),
        ("failover:(a,b", "closing parenthesis"),
        ("failover:(a)b", "only .options may follow"),
        ("amqp://h:1", "amqp:// is not a STOMP broker"),
        ("stomp://h:port", "'h:port' is no host with a port"),
        ("stomp://h:99999", "'h:99999' is no host with a port"),
        ("stomp://h:0", "port from 1 to 65535"),
        ("failover:(stomp://u:p@a,stomp://v:p@b)", "different users"),
        ("stomp://h?jms.clientID=a&jms.useAsyncSend=true&jms.clientID=b", "jms.clientID .* twice"),
        ("failover:(a)?randomize=true&randomize=false", "randomize is there twice"),
        ("ssl://h?tls.verifyHostName=true&socket.verifyHostName=false", "verifyHostName .* twice"),
        ("failover:(a?jms.clientID=x,b?jms.clientID=y)", "different jms.clientID, and"),
        ("failover:(ssl://a?tls.serverName=a,ssl://b?tls.serverName=b)", "different tls.serverN"),
        ("failover:(ssl://a?socket.verifyHostName=false,ssl://b)", "different socket.verifyHost"),
        ("stomp://h?tls.caFile=x", "of no use without TLS"),
        ("ssl://h?tls.keyFile=x", "need a certificate_file"),
        ("stomp://h?timeout=1000", r"failover:\(stomp://HOST:PORT\)\?timeout="),
        ("stomp://h?randomize=false", "option of connecting again"),
        ("failover:(stomp://h?timeout=1000)", "option of connecting again"),
        ("failover:(stomp://h)?timeout=-2", "timeout=-2: timeout must be 0 or more"),
        ("failover:(stomp://h)?maxReconnectAttempts=-2", "maximum_attempts must be -1 or more"),
        ("failover:(stomp://h)?backOffMultiplier=0.5", "back_off_multiplier must be 1 or more"),
        ("failover:(stomp://h)?backOffMultiplier=nan", "back_off_multiplier must be a number"),
        ("failover:(stomp://h)?backOffMultiplier=x", "backOffMultiplier=x: must be a number"),
        ("stomp://h?jms.sendTimeout=1.5", "jms.sendTimeout=1.5: must be a whole number"),
        ("stomp://h?jms.sendTimeout=1_000", "must be a whole number"),
        ("stomp://h?jms.sendTimeout=99999999999999", "request_timeout of .* is too long"),
        ("stomp://h?jms.clientID=a%0Ab", "client_id holds a line end"),
        ("stomp://h?wireFormat.maxFrameSize=0", "max_body_size must be 1 or more"),
        ("stomp://h?jms.optimizeAcknowledge=yes", "jms.optimizeAcknowledge=yes: must be true"),
        ("stomp://h?jms.prefetchPolicy.all=many", "jms.prefetchPolicy.all=many: must be a whole"),
        ("stomp://h?jms.prefetchPolicy.queuePrefetch=-1", "prefetch of queue must be 0 or more"),
        ("stomp://h?jms.redeliveryPolicy.maximumRedeliveries=-2", "maximum_redeliveries"),
    ],
)
def test_nonsense_is_refused(text: str, complaint: str) -> None:
    """The error says what is wrong."""
    with pytest.raises(ConfigurationError, match=complaint):
        parse_broker_uri(text)


@pytest.mark.parametrize(
    "text",
    [
        f"amqp://u:{SECRET}@h:1",
        f"u:{SECRET}://x@h:1",
        f"stomp://u:{SECRET}@h:port",
        f"stomp://u:{SECRET}@",
        f"stomp://u:{SECRET}?x@h",
        f"stomp://u:x?{SECRET}@h",
        f"stomp://u:1?{SECRET}@h",
        f"stomp://u:1?x={SECRET}@h",
        f"stomp://u:1?timeout={SECRET}@h",
        f"stomp://u:{SECRET}\u2100@h:port",
        f"stomp://u:[{SECRET}@h:port",
        f"stomp://u:{SECRET}%0A@h",
        f"failover:(stomp://u:{SECRET}@h:1,amqp://u:{SECRET}@h:1)",
        f"failover:(stomp://u:{SECRET}@h:1,stomp://u:other{SECRET}@h:1)",
        f"failover:(stomp://u:{SECRET},x@h:1)",
        f"failover:(stomp://u:x,{SECRET}:x@h:)",
        f"failover:(stomp://u:{SECRET})x@h:1)",
        f"failover:(stomp://u:x){SECRET}@h:1)",
        f"failover:(stomp://u:{SECRET}@h:1",
        f"failover:()?jms.password={SECRET}",
        f"stomp://h?jms.password=a&{SECRET}=1",
        f"stomp://h?jms.password=a&{SECRET}",
        f"stomp://h?jms.password={SECRET}%0A",
        f"stomp://h?tls.keyPassword={SECRET}",
        f"ssl://h?tls.keyPassword={SECRET}",
        f"stomp://h:x?jms.password={SECRET}",
        f"stomp://h?jms.password={SECRET}&jms.password=other",
        f"failover:(stomp://a?jms.password={SECRET},stomp://b?jms.password=other{SECRET})",
    ],
)
def test_password_is_in_no_error(text: str) -> None:
    """Errors go to logs, and so do their causes; what is wrong is said all the same."""
    with pytest.raises(ConfigurationError) as caught:
        parse_broker_uri(text)
    assert SECRET not in f"{caught.value!r} {caught.value}"
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert len(str(caught.value)) > 20


def test_brokers_that_agree() -> None:
    """What two of them say alike is said once; one without TLS has no say in it, and an option twice alike is one."""
    for text in (
        "failover:(ssl://a?tls.verifyHostName=false,ssl://b?tls.verifyHostName=false,stomp://c)",
        "failover:(ssl://a,ssl://b)?tls.verifyHostName=false&tls.verifyHostName=false",
        "failover:(ssl://a?tls.verifyHostName=false)",
        "failover:(ssl://a?tls.verifyHostName=false,ssl://b?socket.verifyHostName=false)",
        "failover:(ssl://a?tls.verifyHostName=false,ssl://b)?tls.verifyHostName=false",
    ):
        assert parse_broker_uri(text).options.tls == TlsOptions(verify_hostname=False)


def test_brokers_with_one_user() -> None:
    """Named once or for each: it is the same."""
    for text in (
        f"failover:(stomp://u:{SECRET}@a,b)",
        f"failover:(stomp://u:{SECRET}@a,u:{SECRET}@b)",
    ):
        options = parse_broker_uri(text).options
        assert (options.username, options.password) == ("u", SECRET)


@pytest.mark.parametrize(
    "text",
    [f"stomp://u:{SECRET}@h", f"u:{SECRET}@h", f"stomp://h?jms.userName=u&jms.password={SECRET}"],
)
def test_password_is_in_no_repr(text: str) -> None:
    """It is there, and is not shown."""
    uri = parse_broker_uri(text)
    assert uri.options.password == SECRET
    assert SECRET not in f"{uri!r} {uri} {uri.options!r} {uri.addresses!r}"


# -- destinations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "name", "options"),
    [
        ("queue://a", "queue", "a", {}),
        ("topic://a.b", "topic", "a.b", {}),
        ("temp-queue://x", "temp-queue", "x", {}),
        ("a", "queue", "a", {}),
        ("queue://a?consumer.prefetchSize=1", "queue", "a", {"prefetchSize": "1"}),
        (
            "a?consumer.exclusive=true&consumer.priority=7",
            "queue",
            "a",
            {"exclusive": "true", "priority": "7"},
        ),
        ("a?consumer.selector=x%3D'1'", "queue", "a", {"selector": "x='1'"}),
        ("queue://a/b:c", "queue", "a/b:c", {}),
    ],
)
def test_destination(text: str, kind: str, name: str, options: dict[str, str]) -> None:
    """A kind, a name, and options for its consumers."""
    found = parse_destination(text)
    assert (found.kind, found.name, found.options) == (kind, name, options)
    assert str(found) == f"{kind}://{name}"


def test_bare_name_is_of_the_default_kind() -> None:
    """A `Topic("prices")` needs no scheme."""
    assert str(parse_destination("prices", "topic")) == "topic://prices"
    assert str(parse_destination("queue://prices", "topic")) == "queue://prices"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "queue:// ",
        "queue:// x",
        "queue://x ",
        " x",
        "/queue/ x",
        " queue://x",
        "\t",
        "\u3000",
        "queue://",
        "http://a",
        "queue://a\nb",
        "a\0",
        "a\r",
        "a\x1b[2J",
        "a\x7f",
        "a\ud800",
        "a, ,b",
        "a,b\0",
        "?consumer.exclusive=true",
        " ?consumer.exclusive=true",
    ],
)
def test_unfit_destination_is_refused(text: str) -> None:
    """Before it could break a frame."""
    with pytest.raises(InvalidDestinationError):
        parse_destination(text)


def test_unknown_consumer_option_names_the_nearest() -> None:
    """As the Java client raises ConfigurationException."""
    with pytest.raises(ConfigurationError, match=r"did you mean 'consumer\.prefetchSize'"):
        parse_destination("queue://a?consumer.prefechSize=1")


def test_option_for_another_kind_of_policy_is_refused() -> None:
    """ActiveMQ's words say nothing about Artemis' policy."""
    options = ConnectionOptions(redelivery_policy=ArtemisRedeliveryPolicy())
    with pytest.raises(
        ConfigurationError,
        match=r"preDispatchCheck=false: it is an option of a RedeliveryPolicy, and the program gives redelivery",
    ):
        parse_broker_uri("stomp://a?jms.redeliveryPolicy.preDispatchCheck=false", options)
