"""The options of a connection, with the Java client's defaults."""

from __future__ import annotations

import enum
import inspect
import math
import pickle
import re
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.app.health import HealthLimits
from jmsx.config.options import (
    ConnectionOptions,
    ConsumerOptions,
    PrefetchPolicy,
    ReconnectPolicy,
    TlsOptions,
)
from jmsx.core.policy import ArtemisRedeliveryPolicy, RedeliveryPolicy, RedeliveryPolicyMap
from jmsx.core.values import DestinationKind, OptimizeAcknowledge
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable


class Service(str, enum.Enum):  # noqa: UP042 - StrEnum prints as the text that it is, and most programs have this
    """A text with a name."""

    BILLING = "billing"


def test_texts_of_an_enum_are_the_plain_ones() -> None:
    """They go into names that the broker knows, and what Artemis' management is asked for has to be one of them."""
    options = ConnectionOptions(client_id=Service.BILLING, username=Service.BILLING)
    assert f"{options.client_id} {options.username}" == "billing billing"


def test_prefetch_of_each_kind() -> None:
    """Source: `ActiveMQPrefetchPolicy.java:33-38`."""
    policy = PrefetchPolicy()
    assert [policy.prefetch(kind) for kind in DestinationKind] == [1000, 32767, 100]
    assert policy.queue_browser == 500


@pytest.mark.parametrize("prefetch", [0, 7])
def test_one_prefetch_for_all(prefetch: int) -> None:
    """0 is allowed: it means pull."""
    policy = PrefetchPolicy.all(prefetch)
    assert {policy.prefetch(kind) for kind in DestinationKind} == {prefetch}
    assert policy.queue_browser == prefetch


@pytest.mark.parametrize("field", ["queue", "queue_browser", "topic", "durable_topic"])
def test_negative_prefetch_is_refused(field: str) -> None:
    """The error names the kind."""
    with pytest.raises(ConfigurationError, match=f"prefetch of {field} must be 0 or more, not -1"):
        PrefetchPolicy(**{field: -1})


def test_map_of_policies_wins() -> None:
    """Where there is one, `redelivery_policy` is not looked at."""
    plain, special = RedeliveryPolicy(), RedeliveryPolicy(maximum_redeliveries=1)
    assert ConnectionOptions().policy("queue://a") == plain
    policies = RedeliveryPolicyMap(entries={"queue://a": special})
    options = ConnectionOptions(redelivery_policies=policies)
    assert (options.policy("queue://a"), options.policy("queue://b")) == (special, plain)


def test_optimized_acknowledgement_is_off_until_asked_for() -> None:
    """Source: `ActiveMQConnectionFactory.java:137-138` for its times."""
    assert ConnectionOptions().optimize() is None
    assert ConnectionOptions(optimize_acknowledge=True).optimize() == OptimizeAcknowledge(
        timeout=0.3, scheduled_interval=0.0
    )
    options = ConnectionOptions(
        optimize_acknowledge=True,
        optimize_acknowledge_timeout=0.0,
        optimized_ack_scheduled_ack_interval=9.0,
    )
    assert options.optimize() == OptimizeAcknowledge(timeout=0.0, scheduled_interval=9.0)


def test_password_is_not_shown() -> None:
    """Options are logged by people."""
    assert "geheim" not in repr(ConnectionOptions(username="u", password="geheim"))  # noqa: S106 - no real account has it
    assert "geheim" not in repr(TlsOptions(certificate_file="c", key_password="geheim"))  # noqa: S106 - no real account has it


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, one.name, id=f"{kind.__name__}.{one.name}")
        for kind in (
            ConnectionOptions,
            ConsumerOptions,
            PrefetchPolicy,
            ReconnectPolicy,
            TlsOptions,
            RedeliveryPolicy,
            ArtemisRedeliveryPolicy,
        )
        for one in fields(kind)
    ],
)
def test_each_option_is_checked(kind: type[Any], name: str) -> None:
    """So that one whose check was forgotten is told here, and not by who runs into it."""
    with pytest.raises(ConfigurationError):
        kind(**{name: object()})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"request_timeout": math.inf}, "request_timeout must be a number that is finite"),
        ({"request_timeout": math.nan}, "finite and not huge seconds; None is no limit"),
        ({"max_body_size": 10**400}, "max_body_size must be 1 or more, and not so large"),
        ({"request_timeout": 0}, "not 0 seconds; None is no limit"),
        ({"request_timeout": -1}, "None is no limit"),
        (
            {"request_timeout": "30"},
            "request_timeout='30' is no duration; write seconds, a timedelta",
        ),
        ({"request_timeout": b"30s"}, "request_timeout must be a number, not a bytes"),
        ({"request_timeout": "0s"}, "request_timeout must be 0.001 or more"),
        ({"connect_timeout": "2w"}, "too long; None is no limit"),
        ({"connect_timeout": timedelta(-1)}, "connect_timeout must be 0 s or more"),
        ({"heartbeat": ("2s", "soon")}, "heartbeat to expect='soon' is no duration"),
        ({"heartbeat": ("2s", None)}, "heartbeat to expect must be seconds"),
        ({"request_timeout": True}, "request_timeout must be a number, not a bool"),
        ({"connect_timeout": 1e300}, "connect_timeout must be a number that is finite"),
        ({"connect_timeout": 1e9}, "too long; None is no limit"),
        ({"connect_timeout": 0}, "connect_timeout must be"),
        ({"heartbeat": (-1, 1)}, "heartbeat to send must be 0 or more"),
        ({"heartbeat": (1, math.inf)}, "heartbeat to expect must be a number"),
        ({"heartbeat": (1, 1e9)}, "heartbeat to expect of 1000000000.0 seconds is too long"),
        ({"heartbeat": 10}, "heartbeat must be a tuple"),
        ({"heartbeat": (1, 2, 3)}, "heartbeat must be a tuple"),
        ({"optimize_acknowledge": "false"}, "optimize_acknowledge must be True or False"),
        ({"optimize_acknowledge_timeout": -1}, "optimize_acknowledge_timeout must be 0 or more"),
        (
            {"optimized_ack_scheduled_ack_interval": math.nan},
            "optimized_ack_scheduled_ack_interval",
        ),
        ({"max_body_size": 0}, "max_body_size must be 1 or more"),
        ({"max_body_size": 1.5}, "max_body_size must be a whole number, not a float"),
        ({"client_id": 7}, "client_id must be a str, not an int"),
        ({"client_id": "a\nb"}, "client_id holds a line end"),
        ({"username": "a\0"}, "username holds a line end or NUL"),
        ({"password": "geheim\r"}, "password holds a line end"),
        ({"password": b"geheim"}, "password must be a str, not a bytes"),
        ({"dialect": 3}, "dialect must be a str"),
        ({"prefetch_policy": 10}, "prefetch_policy must be a PrefetchPolicy"),
        ({"reconnect": True}, "reconnect must be a ReconnectPolicy or None"),
        ({"tls": True}, "tls must be a TlsOptions"),
        ({"tls": {"key_password": "geheim"}}, "tls must be a TlsOptions, not a dict"),
        ({"prefetch": 1}, "unknown connection option 'prefetch'; did you mean 'prefetch_policy'"),
        ({"pasword": "geheim"}, "did you mean 'password'"),
    ],
    ids=str,
)
def test_nonsense_is_refused_at_the_door(options: dict[str, Any], complaint: str) -> None:
    """With what was expected; a value of the wrong type is not shown, for it may be a password."""
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        ConnectionOptions.of(**options)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options", "complaint"),
    [
        (PrefetchPolicy, {"queue": 1.5}, "prefetch of queue must be a whole number"),
        (PrefetchPolicy, {"queue": True}, "prefetch of queue must be a whole number"),
        (ReconnectPolicy, {"initial_delay": -1}, "initial_delay must be 0 or more"),
        (
            ReconnectPolicy,
            {"maximum_delay": math.inf},
            "maximum_delay must be a number that is finite",
        ),
        (
            ReconnectPolicy,
            {"timeout": -0.5},
            "timeout must be 0 or more, .* -1 is the request_timeout",
        ),
        (ReconnectPolicy, {"startup_timeout": "-1s"}, "startup_timeout='-1s' is no duration"),
        (ReconnectPolicy, {"maximum_delay": None}, "maximum_delay must be seconds"),
        (ReconnectPolicy, {"randomize": 1}, "randomize must be True or False"),
        (TlsOptions, {"ca_file": b"x"}, "ca_file must be a str"),
        (TlsOptions, {"key_file": "x"}, "need a certificate_file"),
        (TlsOptions, {"key_password": "geheim"}, "need a certificate_file"),
        (TlsOptions, {"verify_hostname": "false"}, "verify_hostname must be True or False"),
        (TlsOptions, {"server_name": ""}, "server_name must not be empty"),
    ],
)
def test_nonsense_in_a_part_is_refused(
    kind: type[Any], options: dict[str, Any], complaint: str
) -> None:
    """The parts look after themselves."""
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        kind(**options)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        (RedeliveryPolicy, {"maximum_redeliveries": "6"}),
        (RedeliveryPolicy, {"maximum_redeliveries": 1.5}),
        (RedeliveryPolicy, {"back_off_multiplier": math.nan}),
        (RedeliveryPolicy, {"back_off_multiplier": -1}),
        (RedeliveryPolicy, {"redelivery_delay": None}),
        (RedeliveryPolicy, {"use_exponential_back_off": "true"}),
        (ArtemisRedeliveryPolicy, {"max_delivery_attempts": "10"}),
        (ArtemisRedeliveryPolicy, {"multiplier": "2"}),
    ],
    ids=str,
)
def test_nonsense_in_a_policy_is_refused(policy: type[Any], options: dict[str, Any]) -> None:
    """By name, and not by a TypeError when the first message fails."""
    (name,) = options
    with pytest.raises(ConfigurationError, match=f"^{name} must be"):
        policy(**options)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: RedeliveryPolicy(maximum_redelivery=3),  # type: ignore[call-arg]  # the refusal is what is tested
            "unknown option of RedeliveryPolicy 'maximum_redelivery'; did you mean 'maximum_redeliveries'?",
        ),
        (
            lambda: RedeliveryPolicy(max_retries=3),  # type: ignore[call-arg]  # the refusal is what is tested
            "unknown option of RedeliveryPolicy 'max_retries'; did you mean 'maximum_redeliveries'?",
        ),
        (
            lambda: ArtemisRedeliveryPolicy(maximum_redeliveries=3),  # type: ignore[call-arg]  # the refusal is what is tested
            "unknown option of ArtemisRedeliveryPolicy 'maximum_redeliveries'; did you mean",
        ),
        (
            lambda: PrefetchPolicy(queues=3),  # type: ignore[call-arg]  # the refusal is what is tested
            "unknown option of PrefetchPolicy 'queues'; did you mean 'queue'?",
        ),
        (
            lambda: ReconnectPolicy(xxx=3),  # type: ignore[call-arg]  # the refusal is what is tested
            "unknown option of ReconnectPolicy 'xxx'; there are back_off_multiplier, ",
        ),
        (
            lambda: TlsOptions(cafile="a"),  # type: ignore[call-arg]  # the refusal is what is tested
            "unknown option of TlsOptions 'cafile'; did you mean 'ca_file'?",
        ),
        (
            lambda: ConnectionOptions(usernam="a"),  # type: ignore[call-arg]  # the refusal is what is tested
            "unknown option of ConnectionOptions 'usernam'; did you mean 'username'?",
        ),
        (
            lambda: HealthLimits(stuk=1.0),  # type: ignore[call-arg]  # the refusal is what is tested
            "unknown option of HealthLimits 'stuk'; ",
        ),
        (
            lambda: RedeliveryPolicy(3),  # type: ignore[call-arg]  # the refusal is what is tested
            "RedeliveryPolicy takes its options by name, such as maximum_redeliveries=...",
        ),
        (
            lambda: replace(RedeliveryPolicy(), delay=3),  # type: ignore[call-arg]  # the refusal is what is tested
            "unknown option of RedeliveryPolicy 'delay'; ",
        ),
    ],
)
def test_a_misspelt_option_names_the_nearest(make: Callable[[], object], told: str) -> None:
    """And is an error of jmsx, as every other mistake in them; type checkers see the names."""
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        make()


def test_the_options_can_be_looked_up() -> None:
    """By an editor, or `help()`."""
    assert list(inspect.signature(RedeliveryPolicy).parameters)[:2] == [
        "maximum_redeliveries",
        "initial_redelivery_delay",
    ]
    assert pickle.loads(pickle.dumps(RedeliveryPolicy())) == RedeliveryPolicy()  # noqa: S301 - the test has pickled it


def test_times_as_people_write_them() -> None:
    """All that there are: seconds, a timedelta or a text; the options are the same, however they were written."""
    options = ConnectionOptions(
        optimize_acknowledge_timeout="500ms",
        optimized_ack_scheduled_ack_interval=timedelta(seconds=9),
        heartbeat=("5s", timedelta(seconds=20)),
        connect_timeout="1min",
        request_timeout=timedelta(minutes=2),
        reconnect=ReconnectPolicy(
            initial_delay="20ms",
            maximum_delay="1min",
            timeout=timedelta(hours=1),
            startup_timeout="1d",
        ),
    )
    assert options == ConnectionOptions(
        optimize_acknowledge_timeout=0.5,
        optimized_ack_scheduled_ack_interval=9.0,
        heartbeat=(5.0, 20.0),
        connect_timeout=60.0,
        request_timeout=120.0,
        reconnect=ReconnectPolicy(
            initial_delay=0.02, maximum_delay=60.0, timeout=3600.0, startup_timeout=86400.0
        ),
    )
    assert replace(options, connect_timeout="2s").connect_timeout == 2.0
    assert ReconnectPolicy(timeout=-1, startup_timeout=-1).startup_timeout == -1


def test_options_stay_as_they_are() -> None:
    """Also those that are durations."""
    for options in (ConnectionOptions(), ReconnectPolicy(), HealthLimits(), RedeliveryPolicy()):
        for each in fields(options):
            with pytest.raises((AttributeError, TypeError)):
                setattr(options, each.name, "2s")
    assert HealthLimits(handler="10min", stall=timedelta(seconds=5)) == HealthLimits(
        handler=600.0, stall=5
    )


def test_no_limit_and_paths() -> None:
    """None is no limit; a file may be a Path."""
    options = ConnectionOptions(
        request_timeout=None, connect_timeout=None, tls=TlsOptions(ca_file=Path("a"))
    )
    assert (options.request_timeout, options.connect_timeout) == (None, None)
