"""
What each alert must do: series that somebody could have seen, and when it fires.

For each threshold there is traffic on either side of it, near enough that half or twice the threshold
would be found out. `promtool test rules` plays them, with a sample of each series each 30 s; where an alert looks
back over hours, each 150 s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from jmsx_dashboards.alerts import BURNS
from jmsx_dashboards.model import Budget
from jmsx_dashboards.recordings import BUDGET, BUDGET_WINDOWS, DEPTH, SETTLED_IN_AN_HOUR

STEP: Final = 30  #: seconds between two samples
#: Seconds between two samples where an alert looks back over hours: half of the shortest wait there is among these, and
#: a twelfth of the shortest window. With 30 s they take four times as much of a processor.
SLOW_STEP: Final = 150
JOB: Final = "shop"
INSTANCE: Final = "a:9000"
OTHER_INSTANCE: Final = "b:9000"
DESTINATION: Final = "queue://orders"
CONSUMER: Final = "handle"
BROKER: Final = "broker:61613"

_DEAD_LETTERED: Final = "jmsx_dead_lettered_messages_total"
_TARGET: Final = {"job": JOB, "instance": INSTANCE}
_WHERE: Final = {"job": JOB, "destination": DESTINATION}
_WHO: Final = {**_WHERE, "consumer": CONSUMER}
_LINK: Final = {**_TARGET, "broker": BROKER}
_SERIES: Final = {**_TARGET, "destination": DESTINATION, "consumer": CONSUMER}


@dataclass(frozen=True, slots=True)
class Series:
    """One input series, with its values in promtool's notation: `0+2x9` is 0, 2, … 18."""

    name: str
    labels: dict[str, str]
    values: str


@dataclass(frozen=True, slots=True)
class Point:
    """At `minute` the alert fires with these labels, or does not."""

    minute: float
    firing: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """At `minute` a recording rule has these values, each with its labels."""

    record: str
    minute: float
    values: tuple[tuple[dict[str, str], float], ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One story about one alert."""

    alert: str
    title: str
    series: tuple[Series, ...]
    points: tuple[Point, ...]
    recorded: tuple[Recorded, ...] = ()
    step: int = STEP


def counted(*segments: tuple[int, float], step: int = STEP) -> str:
    """Word a counter that grows by so much each step, for so many minutes, segment by segment."""
    words = []
    value = 0
    for index, (growth, minutes) in enumerate(segments):
        steps = int(minutes * 60 / step) - (1 if index else 0)
        start = value + (growth if index else 0)
        words.append(f"{start}+{growth}x{steps}")
        value = start + growth * steps
    return " ".join(words)


def held(*segments: tuple[float | str, float], step: int = STEP) -> str:
    """Word a gauge that has this value for so many minutes, segment by segment; `_` is no sample."""
    return " ".join(f"{value}x{int(minutes * 60 / step) - 1}" for value, minutes in segments)


def _once(minutes: float) -> str:
    """Word a counter that grows by 1 once, after 5 minutes."""
    return held((0, 5), (1, minutes - 5))


def _never(*minutes: float) -> tuple[Point, ...]:
    return tuple(Point(minute, None) for minute in minutes)


def _fires(labels: dict[str, str], *minutes: float) -> tuple[Point, ...]:
    return tuple(Point(minute, labels) for minute in minutes)


def _configured(values: str) -> Series:
    """What tells how a consumer is configured, while there is one."""
    settings = {
        "ack_mode": "client",
        "optimize_acknowledge": "false",
        "maximum_redeliveries": "6",
    }
    return Series("jmsx_consumer_info", {**_SERIES, **settings}, values)


def _settled(values: str) -> Series:
    labels = {**_SERIES, "ack_mode": "client", "outcome": "acknowledged"}
    return Series("jmsx_settled_messages_total", labels, values)


def _dead_lettered(growths: tuple[tuple[int, float], ...], step: int) -> tuple[Series, ...]:
    labels = {**_SERIES, "reason": "rejected"}
    return (Series(_DEAD_LETTERED, labels, counted(*growths, step=step)),)


def _late(growths: tuple[tuple[int, float], ...], step: int) -> tuple[Series, ...]:
    name = "jmsx_end_to_end_latency_seconds"
    early = tuple((1000 - growth, lasting) for growth, lasting in growths)
    minutes = sum(lasting for _, lasting in growths)
    return (
        Series(f"{name}_bucket", {**_SERIES, "le": "30.0"}, counted(*early, step=step)),
        Series(f"{name}_count", _SERIES, counted((1000, minutes), step=step)),
    )


def _burning(alert: str) -> tuple[Scenario, ...]:
    """Play a burn-rate alert: 1000 messages each step, so a growth is a share in 1/1000."""
    burn, budget = BURNS[alert], Budget()
    ratio = burn.record(budget)
    bad = _late if "latency" in ratio else _dead_lettered
    threshold = 1000 * burn.factor * burn.share(budget)
    hot, cool = int(threshold * 1.5), int(threshold * 0.7)
    short, long, wait = map(_minutes_of, (burn.short, burn.long, burn.wait))
    step = _step_of(alert)

    def played(
        title: str,
        *growths: tuple[int, float],
        points: tuple[Point, ...],
        recorded: tuple[Recorded, ...] = (),
    ) -> Scenario:
        minutes = sum(lasting for _, lasting in growths)
        settled = _settled(counted((1000, minutes), step=step))
        return Scenario(alert, title, (*bad(growths, step), settled), points, recorded, step)

    stops = 3 * wait
    return (
        played(
            "fires after its wait, and ends with the cause",
            (hot, stops),
            (0, 2 * short),
            points=(
                *_never(wait - 0.5),
                *_fires(_WHERE, wait + 1.5 + step / 60, stops),
                *_never(stops + short + 1),
            ),
        ),
        played(
            "within the budget, then a short burst",
            (cool, long),
            (hot, short + wait + 2),
            points=_never(2 * wait, long, long + short + wait + 1),
            recorded=(
                *(
                    Recorded(f"{ratio}{window}", long, ((_WHERE, cool / 1000),))
                    for window in BUDGET_WINDOWS
                    if window in {burn.short, burn.long}
                ),
                Recorded(SETTLED_IN_AN_HOUR, long, ((_WHERE, 1000 * 3600 / step),)),
            ),
        ),
        played(
            "what is over is no alert",
            (hot, long),
            (cool, short + wait + 2),
            points=_never(long + short + wait + 1),
        ),
        _quiet_queue(alert),
    )


def _step_of(alert: str) -> int:
    """Seconds between two samples for a burn-rate alert."""
    return SLOW_STEP if _minutes_of(BURNS[alert].long) > 60 else STEP


def _minutes_of(window: str) -> int:
    return int(window[:-1]) * (60 if window.endswith("h") else 1)


def _quiet_queue(alert: str) -> Scenario:
    """Play a message each 2.5 minutes, none of them well: 10 in an hour must have passed."""
    step = _step_of(alert)
    held_for = int(2.5 * 60 / step) - 1
    values = " ".join(f"{number}x{held_for}" for number in range(25))
    name = "jmsx_end_to_end_latency_seconds"
    series = (
        (
            Series(f"{name}_bucket", {**_SERIES, "le": "30.0"}, f"0x{25 * (held_for + 1) - 1}"),
            Series(f"{name}_count", _SERIES, values),
        )
        if "Latency" in alert
        else (Series(_DEAD_LETTERED, {**_SERIES, "reason": "rejected"}, values),)
    )
    wait = _minutes_of(BURNS[alert].wait)
    return Scenario(
        alert,
        "few messages say nothing, until more than 10 have passed",
        (*series, _settled(values)),
        (*_never(15 + wait + 4), *_fires(_WHERE, 27.5 + wait + 3)),
        step=step,
    )


_LOSS: Final = (
    Scenario(
        "JmsxDeadLetterPublishFailing",
        "one failure is enough",
        (Series("jmsx_dead_letter_failures_total", _SERIES, _once(20)),),
        (*_never(4.5), *_fires(_WHERE, 5.5, 9), *_never(12)),
    ),
    Scenario(
        "JmsxAcknowledgementsDropped",
        "three messages are delivered again",
        (
            Series(
                "jmsx_ack_dropped_messages_total", {**_SERIES, "reason": "stale_epoch"}, _once(30)
            ),
        ),
        (*_never(4.5, 8), *_fires(_WHO, 11, 14), *_never(20)),
    ),
    Scenario(
        "JmsxTransactionsInDoubt",
        "one in doubt among many that were committed",
        (
            Series("jmsx_transactions_total", {**_TARGET, "outcome": "in_doubt"}, _once(30)),
            Series(
                "jmsx_transactions_total", {**_TARGET, "outcome": "committed"}, counted((5, 30))
            ),
        ),
        (*_never(4.5), *_fires({"job": JOB}, 6, 18), *_never(22)),
    ),
    Scenario(
        "JmsxSendFailing",
        "one refused among many that were confirmed",
        tuple(
            Series(
                "jmsx_sent_messages_total",
                {**_TARGET, "destination": DESTINATION, "outcome": outcome},
                values,
            )
            for outcome, values in (("error", _once(30)), ("confirmed", counted((5, 30))))
        ),
        (*_never(4.5), *_fires(_WHERE, 6, 14), *_never(17)),
    ),
)


def _processed(redelivered: tuple[tuple[int, float], ...]) -> tuple[Series, ...]:
    minutes = sum(lasting for _, lasting in redelivered)
    return (
        Series(
            "jmsx_processed_messages_total",
            {**_SERIES, "outcome": "acknowledged"},
            counted((100, minutes)),
        ),
        Series(
            "jmsx_redeliveries_total", {**_SERIES, "mode": "client_delayed"}, counted(*redelivered)
        ),
    )


def _filled(busy: int, idle: str) -> tuple[Series, ...]:
    other = {**_SERIES, "instance": OTHER_INSTANCE}
    return (
        Series("jmsx_unsettled_messages", _SERIES, held((busy, 40))),
        Series("jmsx_prefetch_limit_messages", _SERIES, held((100, 40))),
        Series("jmsx_unsettled_messages", other, idle),
        Series("jmsx_prefetch_limit_messages", other, held((100, 40))),
    )


#: None waits that others may pass: a consumer shows that from its first moment.
_NONE_WAITS: Final = Series(
    "jmsx_redelivery_pending_messages", {**_SERIES, "blocking": "false"}, held((0, 90))
)


def _stalled(
    title: str, unsettled: str, settled: str, points: tuple[Point, ...], *more: Series
) -> Scenario:
    """A consumer that holds so many messages, settles so many, and none of which waits unless `more` says so."""
    series = (
        Series("jmsx_unsettled_messages", _SERIES, unsettled),
        _NONE_WAITS,
        *more,
        _settled(settled),
    )
    return Scenario("JmsxConsumerStalled", title, series, points)


_PROGRESS: Final = (
    _stalled(
        "settles, stops, and is restarted",
        held((5, 30), (0, 10)),
        counted((20, 5), (0, 35)),
        (*_never(9, 12), *_fires(_SERIES, 17, 29), *_never(32)),
    ),
    replace(
        _stalled(
            "nothing to do",
            held((0, 30)),
            held((200, 30)),
            _never(12, 25),
            _configured(held((1, 30))),
        ),
        recorded=(Recorded(BUDGET, 10, (({"destination": DESTINATION}, 0.001),)),),
    ),
    _stalled(
        "waits for a planned back-off of half an hour",
        held((5, 60)),
        held((200, 60)),
        (*_never(12, 29), *_fires(_SERIES, 37, 55)),
        Series(
            "jmsx_redelivery_pending_messages",
            {**_SERIES, "blocking": "true"},
            held((1, 30), (0, 30)),
        ),
    ),
    _stalled("busy", held((5, 30)), counted((1, 30)), _never(12, 25)),
    _stalled(
        "one is settled each nine minutes",
        held((5, 31)),
        held((0, 4), (1, 9), (2, 9), (3, 9)),
        _never(12.5, 21.5, 30.5),
    ),
    Scenario(
        "JmsxRedeliveryStorm",
        "30 % for 20 minutes",
        _processed(((30, 20), (0, 20))),
        (*_never(8), *_fires(_WHO, 12, 20), *_never(32)),
        (
            Recorded(
                "job_destination_consumer:jmsx_redeliveries_per_processed:ratio_rate10m",
                10,
                ((_WHO, 0.3),),
            ),
        ),
    ),
    Scenario("JmsxRedeliveryStorm", "14 %", _processed(((14, 30),)), _never(15, 25)),
    Scenario(
        "JmsxPrefetchImbalance",
        "one is full, one idles, until it gets something",
        _filled(90, held((0, 30), (5, 10))),
        (*_never(10, 14), *_fires(_WHERE, 16, 29), *_never(31)),
        (
            Recorded(
                "job_instance_destination:jmsx_prefetch_fill:ratio",
                35,
                (
                    ({**_TARGET, "destination": DESTINATION}, 0.9),
                    ({**_WHERE, "instance": OTHER_INSTANCE}, 0.05),
                ),
            ),
        ),
    ),
    Scenario("JmsxPrefetchImbalance", "half full", _filled(60, held((0, 40))), _never(20, 35)),
    Scenario("JmsxPrefetchImbalance", "all have some", _filled(90, held((1, 40))), _never(20, 35)),
)


def _disconnected(reason: str, values: str) -> Series:
    return Series("jmsx_disconnects_total", {**_LINK, "reason": reason}, values)


def _skewed(*growths: tuple[int, float]) -> tuple[Series, ...]:
    minutes = sum(lasting for _, lasting in growths)
    return (
        Series("jmsx_negative_latency_messages_total", _SERIES, counted(*growths)),
        Series("jmsx_delivery_latency_seconds_count", _SERIES, counted((1000, minutes))),
    )


_LINK_AND_WATCH: Final = (
    Scenario(
        "JmsxConnectionDown",
        "is lost and comes back",
        (Series("jmsx_connection_up", _LINK, held((1, 5), (0, 10), (1, 5))),),
        (*_never(4.5, 6.5), *_fires(_LINK, 7.5, 14.5), *_never(16)),
    ),
    Scenario(
        "JmsxConnectionFlapping",
        "a loss each minute for 15 minutes; what we closed does not count",
        (
            _disconnected("io", " ".join(f"{number}x1" for number in range(16)) + " 15x60"),
            _disconnected("closed", counted((10, 45))),
        ),
        (*_never(5), *_fires(_LINK, 10, 15), *_never(35)),
    ),
    Scenario(
        "JmsxConnectionFlapping",
        "a broker is restarted twice, and each time all of 20 sockets are lost",
        (_disconnected("io", held((0, 5), (20, 5), (40, 20))),),
        _never(6, 11, 15, 24),
    ),
    Scenario(
        "JmsxBrokerErrors",
        "one ERROR",
        (Series("jmsx_broker_error_frames_total", _LINK, _once(30)),),
        (*_never(4.5), *_fires(_LINK, 6, 14), *_never(17)),
    ),
    Scenario(
        "JmsxClockSkew",
        "1.5 % come from the future for half an hour",
        _skewed((15, 30), (0, 30)),
        (*_never(10, 14), *_fires(_SERIES, 17, 30), *_never(50)),
        (
            Recorded(
                "job_instance_destination_consumer:jmsx_negative_latency:ratio_rate15m",
                15,
                ((_SERIES, 0.015),),
            ),
        ),
    ),
    Scenario("JmsxClockSkew", "0.7 %", _skewed((7, 40)), _never(25, 40)),
    Scenario(
        "JmsxBrokerClockSkew",
        "behind by one and a half seconds for half an hour",
        (Series("jmsx_broker_clock_ahead_seconds", _LINK, held((-0.002, 5), (-1.5, 30), (0, 20))),),
        (*_never(4, 18), *_fires(_LINK, 21, 34), *_never(36, 50)),
    ),
    Scenario(
        "JmsxBrokerClockSkew",
        "off by over a second, until the broker shows its clock no more",
        (Series("jmsx_broker_clock_ahead_seconds", _LINK, held((2.5, 30), ("_", 20))),),
        (*_fires(_LINK, 20, 29), *_never(36, 50)),
    ),
    Scenario(
        "JmsxBrokerClockSkew",
        "ahead by less than a second",
        (Series("jmsx_broker_clock_ahead_seconds", _LINK, held((0.8, 40))),),
        _never(20, 39),
    ),
    Scenario(
        "JmsxBrokerClockSkew",
        "ahead by more, and a worker of it sees it",
        tuple(
            Series(
                "jmsx_broker_clock_ahead_seconds", {**_LINK, "worker": worker}, held((ahead, 40))
            )
            for worker, ahead in (("1", 0), ("2", 1.4))
        ),
        (*_never(10), *_fires(_LINK, 20, 39)),
    ),
    Scenario(
        "JmsxLabelOverflow",
        "one value too many",
        (Series("jmsx_label_overflow_total", {**_TARGET, "label": "destination"}, _once(90)),),
        (*_never(4.5), *_fires({**_TARGET, "label": "destination"}, 6, 60), *_never(70)),
    ),
    Scenario(
        "JmsxEventLogIncomplete",
        "the disk is full for a moment",
        (
            Series("jmsx_event_log_dropped_events_total", {**_TARGET, "line": "send"}, _once(40)),
            Series(
                "jmsx_event_log_dropped_events_total",
                {**_TARGET, "line": "delivery"},
                counted((0, 40)),
            ),
        ),
        (*_never(4.5), *_fires(_TARGET, 6, 14), *_never(20)),
    ),
    Scenario(
        "JmsxMetricsAbsent",
        "comes late, and goes",
        (
            Series(
                "jmsx_build_info",
                {**_TARGET, "version": "0.1.0", "python": "3.11.7"},
                held(("_", 10), (1, 10), ("_", 30)),
            ),
        ),
        (*_never(3), *_fires({}, 8), *_never(12, 24), *_fires({}, 35)),
    ),
)


def _counter(name: str, **labels: str) -> tuple[str, dict[str, str]]:
    return name, labels


#: Counters of which each increase is told: their alert, the minutes for which it is, what the firing has for labels.
_HAPPENINGS: Final = (
    (
        "JmsxDeadLetterPublishFailing",
        5,
        _WHERE,
        _counter("jmsx_dead_letter_failures_total", destination=DESTINATION, consumer=CONSUMER),
    ),
    (
        "JmsxAcknowledgementsDropped",
        10,
        _WHO,
        _counter(
            "jmsx_ack_dropped_messages_total",
            destination=DESTINATION,
            consumer=CONSUMER,
            reason="stale_epoch",
        ),
    ),
    (
        "JmsxTransactionsInDoubt",
        15,
        {"job": JOB},
        _counter("jmsx_transactions_total", outcome="in_doubt"),
    ),
    (
        "JmsxSendFailing",
        10,
        _WHERE,
        _counter("jmsx_sent_messages_total", destination=DESTINATION, outcome="error"),
    ),
    (
        "JmsxBrokerErrors",
        10,
        _LINK,
        _counter("jmsx_broker_error_frames_total", broker=BROKER),
    ),
    (
        "JmsxReceiptTimeouts",
        10,
        {**_LINK, "command": "SEND"},
        _counter("jmsx_receipt_timeouts_total", broker=BROKER, command="SEND"),
    ),
    (
        "JmsxEventLogIncomplete",
        10,
        _TARGET,
        _counter("jmsx_event_log_dropped_events_total", line="delivery"),
    ),
)


def _happening(
    alert: str, minutes: int, firing: dict[str, str], counter: tuple[str, dict[str, str]]
) -> tuple[Scenario, ...]:
    """Play a process that fails before it is first scraped, and one that does not; both are workers of one instance."""
    name, labels = counter
    target = {**_TARGET, "worker": "0"}
    began = Series("jmsx_start_timestamp_seconds", target, held((0, 40)))
    told = {**target, **labels}
    well = [Series(name, {**told, "outcome": "ok"}, counted((3, 40)))] if "outcome" in told else []
    return (
        Scenario(
            alert,
            "a process that failed before it was first scraped",
            (began, Series(name, told, held((1, 40)))),
            (*_fires(firing, 0.9 * minutes), *_never(1.2 * minutes, 1.9 * minutes)),
        ),
        Scenario(
            alert,
            "a young process that is well",
            (began, Series(name, told, held((0, 40))), *well),
            _never(0.9 * minutes, 1.2 * minutes),
        ),
    )


_WORKER: Final = {**_TARGET, "worker": "1"}


def _restarted(values: str) -> Series:
    return Series("jmsx_worker_restarts_total", _TARGET, values)


_REPORTED: Final = {**_TARGET, "destination": DESTINATION}


def _workers(name: str, labels: dict[str, str], *values: str) -> tuple[Series, ...]:
    """The series of one process after the other, each with these values, under one supervisor."""
    return tuple(
        Series(name, {**labels, "worker": str(number)}, one) for number, one in enumerate(values)
    )


def _stalled_workers(
    title: str,
    unsettled: tuple[int, int],
    waiting: dict[str, tuple[int, int]],
    points: tuple[Point, ...],
) -> Scenario:
    """Two that settle nothing for half an hour; `waiting`: how many of each wait for a back-off, by `blocking`."""
    return Scenario(
        "JmsxConsumerStalled",
        title,
        (
            *_workers("jmsx_unsettled_messages", _SERIES, *(held((one, 30)) for one in unsettled)),
            *(
                series
                for blocking, counts in waiting.items()
                for series in _workers(
                    "jmsx_redelivery_pending_messages",
                    {**_SERIES, "blocking": blocking},
                    *(held((one, 30)) for one in counts),
                )
            ),
            *_workers(
                "jmsx_settled_messages_total",
                {**_SERIES, "ack_mode": "client", "outcome": "acknowledged"},
                *(held((200, 30)),) * 2,
            ),
        ),
        points,
    )


#: What is told of a job is told once, whichever of its workers shows it.
_OF_WORKERS: Final = (
    _stalled_workers(
        "both workers hold one, and one of the two waits for its back-off",
        (1, 1),
        {"false": (1, 0), "true": (0, 0)},
        (*_never(4), *_fires(_SERIES, 8, 29)),
    ),
    _stalled_workers(
        "what one worker holds waits for its back-off, and the other one holds nothing",
        (2, 0),
        {"false": (1, 1), "true": (0, 0)},
        _never(8, 29),
    ),
    _stalled_workers(
        "whatever the workers hold waits behind one that waits for its back-off",
        (1, 1),
        {"false": (0, 0), "true": (1, 0)},
        _never(8, 29),
    ),
    Scenario(
        "JmsxOldestUnsettledTooOld",
        "one worker hangs, and the other one has a back-off for 20 minutes",
        (
            *_workers("jmsx_oldest_unsettled_seconds", _SERIES, "0+30x60", held((0, 31))),
            *_workers(
                "jmsx_redelivery_pending_messages",
                {**_SERIES, "blocking": "false"},
                held((0, 31)),
                held((1, 20), (0, 11)),
            ),
        ),
        (*_never(12, 19.5), *_fires(_SERIES, 22, 29)),
    ),
    Scenario(
        "JmsxBacklogWithoutConsumer",
        "the one consumer of a queue in which one message waits is stopped",
        (
            Series("jmsx_broker_queue_messages", _REPORTED, held((1, 40))),
            _configured(held((1, 20), ("_", 20))),
            Series("jmsx_open_subscriptions", _SERIES, held((1, 20), (0, 20))),
        ),
        (*_never(12, 19, 29), *_fires({"destination": DESTINATION}, 31, 39)),
    ),
    Scenario(
        "JmsxPrefetchImbalance",
        "one worker has its prefetch full, the other one idles",
        (
            *_workers("jmsx_unsettled_messages", _SERIES, held((190, 40)), held((0, 40))),
            *_workers("jmsx_prefetch_limit_messages", _SERIES, *(held((100, 40)),) * 2),
        ),
        (*_never(14), *_fires(_WHERE, 16, 39)),
    ),
    Scenario(
        "JmsxConnectionDown",
        "one worker is without its socket",
        _workers("jmsx_connection_up", _LINK, held((1, 10)), held((1, 2), (0, 8))),
        (*_never(3), *_fires(_LINK, 5, 9)),
    ),
    Scenario(
        "JmsxConnectionFlapping",
        "one worker has a loss each two minutes, of one kind and another, and the other one none",
        tuple(
            series
            for reason, values in (("io", held((0, 4))), ("heartbeat", held((0, 2))))
            for series in _workers(
                "jmsx_disconnects_total",
                {**_LINK, "reason": reason},
                f"{values} {' '.join(held((number, 4)) for number in range(1, 9))}",
                held((0, 36)),
            )
        ),
        (*_never(9), *_fires(_LINK, 21, 30)),
    ),
    Scenario(
        "JmsxCannotConnect",
        "one worker tries each four minutes until it is stopped, the other one did when it began",
        _workers(
            "jmsx_connection_attempts_total",
            {**_LINK, "result": "refused"},
            f"{' '.join(held((number, 4)) for number in range(6))} {held((6, 30))}",
            held((1, 54)),
        ),
        (*_never(5), *_fires(_TARGET, 12, 20, 26), *_never(31)),
    ),
    Scenario(
        "JmsxCannotConnect",
        "a program that connects for a moment now and then",
        (Series("jmsx_connection_attempts_total", {**_LINK, "result": "ok"}, counted((1, 20))),),
        _never(5, 19),
    ),
    Scenario(
        "JmsxConnectionSilent",
        "one worker hears nothing from 5 minutes on, where one is allowed 20 s and the other 10 minutes",
        (
            *_workers(
                "jmsx_last_frame_received_timestamp_seconds", _LINK, "0+30x50", "0+30x10 300x40"
            ),
            *_workers("jmsx_silence_limit_seconds", _LINK, held((20, 25)), held((600, 25))),
        ),
        (*_never(8, 15.5), *_fires(_LINK, 18, 24)),
    ),
    Scenario(
        "JmsxInstanceGone",
        "is away for two hours: of one that is gone for longer than one nothing is said",
        (
            Series("up", _TARGET, held((1, 10), (0, 120))),
            Series(
                "jmsx_build_info",
                {**_TARGET, "version": "0.1.0", "python": "3.11.7"},
                held((1, 10), ("_", 120)),
            ),
        ),
        (*_never(11.5), *_fires(_TARGET, 13, 60), *_never(85, 125)),
    ),
    Scenario(
        "JmsxLabelOverflow",
        "one value too many in one worker",
        _workers(
            "jmsx_label_overflow_total",
            {**_TARGET, "label": "destination"},
            _once(30),
            held((0, 30)),
        ),
        (*_never(4.5), *_fires({**_TARGET, "label": "destination"}, 6, 29)),
    ),
    Scenario(
        "JmsxEventLogStale",
        "the disk hangs for one of two workers",
        _workers("jmsx_event_log_unsynced_seconds", _TARGET, held((1, 10)), held((90, 10))),
        _fires(_TARGET, 2, 9),
    ),
    Scenario(
        "JmsxMessagesUnaccounted",
        "one is missing in the report of one host, and in that of another one none",
        tuple(
            Series("jmsx_report_unaccounted_messages", {**_REPORTED, "instance": where}, values)
            for where, values in ((INSTANCE, held((1, 30))), (OTHER_INSTANCE, held((0, 30))))
        ),
        (*_never(14), *_fires(_WHERE, 16, 29)),
    ),
    Scenario(
        "JmsxPipelineStale",
        "one host makes a report each hour, and another one has made its last long ago",
        tuple(
            Series("jmsx_report_timestamp_seconds", {**_TARGET, "instance": where}, values)
            for where, values in (
                (INSTANCE, held((0, 240), step=SLOW_STEP)),
                (
                    OTHER_INSTANCE,
                    held((0, 60), (3600, 60), (7200, 60), (10800, 60), step=SLOW_STEP),
                ),
            )
        ),
        _never(128, 200, 239),
        step=SLOW_STEP,
    ),
)

_NEW: Final = (
    Scenario(
        "JmsxConsumerStalled",
        "one waits for its back-off, and the others, which may pass it, do not move",
        (
            Series("jmsx_unsettled_messages", _SERIES, held((5, 60))),
            Series(
                "jmsx_redelivery_pending_messages", {**_SERIES, "blocking": "false"}, held((1, 60))
            ),
            _settled(held((200, 60))),
        ),
        (*_never(4), *_fires(_SERIES, 8, 12, 55)),
    ),
    Scenario(
        "JmsxConsumerStalled",
        "all that it holds waits for a back-off of 15 minutes, and nothing waits behind",
        (
            Series("jmsx_unsettled_messages", _SERIES, held((2, 15), (0, 15))),
            Series(
                "jmsx_redelivery_pending_messages",
                {**_SERIES, "blocking": "false"},
                held((2, 15), (0, 15)),
            ),
            _settled(held((200, 30))),
        ),
        _never(8, 12, 14.5, 20),
    ),
    Scenario(
        "JmsxOldestUnsettledTooOld",
        "one handler hangs while others work; then the process is stopped",
        (
            Series("jmsx_oldest_unsettled_seconds", _SERIES, "0+30x50 0x20"),
            _settled(counted((20, 36))),
        ),
        (*_never(6, 9.5, 11), *_fires(_SERIES, 12, 24), *_never(26)),
    ),
    Scenario(
        "JmsxOldestUnsettledTooOld",
        "waits for a planned back-off of 15 minutes",
        (
            Series("jmsx_oldest_unsettled_seconds", _SERIES, "0+30x60"),
            Series(
                "jmsx_redelivery_pending_messages",
                {**_SERIES, "blocking": "false"},
                held((1, 15), (0, 15)),
            ),
        ),
        (*_never(12, 14.5), *_fires(_SERIES, 17)),
    ),
    Scenario(
        "JmsxOldestUnsettledTooOld",
        "slow, and well",
        (Series("jmsx_oldest_unsettled_seconds", _SERIES, held((400, 30))),),
        _never(12, 29),
    ),
    Scenario(
        "JmsxBacklogWithoutConsumer",
        "consumers are stopped with messages waiting, and come back",
        (
            Series("jmsx_broker_queue_messages", _REPORTED, held((50, 60))),
            _configured(held((1, 10), ("_", 20), (1, 30))),
            Series("jmsx_open_subscriptions", _SERIES, held((2, 10), (0, 20), (2, 30))),
        ),
        (*_never(5, 15), *_fires({"destination": DESTINATION}, 25), *_never(35)),
        (Recorded(DEPTH, 5, (({"destination": DESTINATION}, 50),)),),
    ),
    Scenario(
        "JmsxBacklogWithoutConsumer",
        "an empty queue, and a queue that jmsx has never read, as the brokers' own exporters tell them",
        (
            Series(
                "activemq_queue_queue_size", {**_TARGET, "destination": "orders"}, held((0, 30))
            ),
            Series(
                "artemis_message_count",
                {**_TARGET, "queue": "others", "address": "others"},
                held((9, 30)),
            ),
            _configured(held((1, 5), ("_", 25))),
        ),
        _never(5, 16, 29),
        (
            Recorded(
                DEPTH,
                5,
                (({"destination": DESTINATION}, 0), ({"destination": "queue://others"}, 9)),
            ),
        ),
    ),
    Scenario(
        "JmsxBacklogWithoutConsumer",
        "the broker is down, which another alert tells; then it is there, and nobody subscribes",
        (
            Series("jmsx_broker_queue_messages", _REPORTED, held((50, 60))),
            _configured(held((1, 60))),
            Series("jmsx_open_subscriptions", _SERIES, held((0, 60))),
            Series("jmsx_connection_up", _LINK, held((0, 30), (1, 30))),
        ),
        (*_never(15, 29, 35), *_fires({"destination": DESTINATION}, 45)),
    ),
    Scenario(
        "JmsxCannotConnect",
        "the broker comes after 10 minutes",
        (
            Series(
                "jmsx_connection_attempts_total",
                {**_LINK, "result": "refused"},
                counted((2, 10), (0, 20)),
            ),
            Series("jmsx_connection_up", _LINK, held(("_", 10), (1, 20))),
        ),
        (*_never(1), *_fires(_TARGET, 4, 9), *_never(12)),
    ),
    Scenario(
        "JmsxCannotConnect",
        "one of two brokers refuses, the other one takes us; and one that never tried",
        (
            Series(
                "jmsx_connection_attempts_total",
                {**_LINK, "result": "refused"},
                counted((1, 20)),
            ),
            Series("jmsx_connection_up", {**_LINK, "broker": "other:61613"}, held((1, 20))),
            Series(
                "jmsx_connection_attempts_total",
                {**_LINK, "instance": OTHER_INSTANCE, "result": "refused"},
                held((0, 20)),
            ),
        ),
        _never(5, 19),
    ),
    Scenario(
        "JmsxConnectionSilent",
        "nothing is heard after 5 minutes where 20 s are allowed, until it is dropped",
        (
            Series("jmsx_last_frame_received_timestamp_seconds", _LINK, "0+30x10 300x19 900+30x20"),
            Series("jmsx_silence_limit_seconds", _LINK, held((20, 26))),
        ),
        (*_never(4.5, 7), *_fires(_LINK, 8, 14.5), *_never(16)),
    ),
    Scenario(
        "JmsxConnectionSilent",
        "a quiet broker without heart-beats",
        (
            Series("jmsx_last_frame_received_timestamp_seconds", _LINK, held((0, 30))),
            Series("jmsx_silence_limit_seconds", _LINK, held((0, 30))),
        ),
        _never(5, 29),
    ),
    Scenario(
        "JmsxReceiptTimeouts",
        "one SEND is not answered",
        (Series("jmsx_receipt_timeouts_total", {**_LINK, "command": "SEND"}, _once(30)),),
        (*_never(4.5), *_fires({**_LINK, "command": "SEND"}, 6, 14), *_never(17)),
    ),
    Scenario(
        "JmsxInstanceGone",
        "one of two is lost, and comes back",
        tuple(
            Series(name, {**_TARGET, **more}, values)
            for more, name, values in (
                ({}, "up", held((1, 10), (0, 10), (1, 10))),
                ({"instance": OTHER_INSTANCE}, "up", held((1, 30))),
                (
                    {"version": "0.1.0", "python": "3.11.7"},
                    "jmsx_build_info",
                    held((1, 10), ("_", 10), (1, 10)),
                ),
            )
        ),
        (*_never(9, 11.5), *_fires(_TARGET, 12.5, 19), *_never(21)),
    ),
    Scenario(
        "JmsxInstanceGone",
        "a target that never ran jmsx is down",
        (Series("up", _TARGET, held((0, 30))),),
        _never(5, 29),
    ),
    Scenario(
        "JmsxWorkerSilent",
        "one of two hangs for 10 minutes, and goes on",
        (
            Series("jmsx_worker_up", {**_TARGET, "worker": "0"}, held((1, 20))),
            Series("jmsx_worker_up", _WORKER, held((1, 5), (0, 10), (1, 5))),
        ),
        (*_never(4.5, 6.5), *_fires(_WORKER, 7.5, 14.5), *_never(16)),
    ),
    Scenario(
        "JmsxWorkerSilent",
        "one starts and ends, of which nothing is told, and does not answer for a moment before",
        (
            Series(
                "jmsx_worker_up",
                _WORKER,
                # as Prometheus writes down that a series is gone
                f"{held(('_', 5), (1, 5), (0, 1))} stale {held(('_', 9.5), (0, 1), (1, 8))}",
            ),
        ),
        _never(4, 10.5, 13, 21.5, 25),
    ),
    Scenario(
        "JmsxWorkersDying",
        "one dies each 4 minutes, three times",
        (_restarted(held((0, 5), (1, 4), (2, 4), (3, 20))),),
        (*_never(8, 12.5), *_fires(_TARGET, 14, 19), *_never(21)),
    ),
    Scenario(
        "JmsxWorkersDying",
        "one dies whenever it is started, with half a minute in between, and is mended",
        (_restarted(counted((1, 20), (0, 20))),),
        (*_never(0.5), *_fires(_TARGET, 2, 20, 33), *_never(36)),
    ),
    Scenario(
        "JmsxWorkersDying",
        "all four are killed at once, twice",
        (_restarted(held((0, 5), (4, 5), (8, 20))),),
        _never(6, 11, 15),
    ),
    Scenario(
        "JmsxWorkersDying",
        "one died before a deploy, after which its supervisor counts from 0",
        (_restarted(held((0, 5), (1, 5), ("_", 1), (0, 10))),),
        _never(8, 12, 18),
    ),
    Scenario(
        "JmsxEventLogStale",
        "the disk hangs for 5 minutes",
        (Series("jmsx_event_log_unsynced_seconds", _TARGET, held((40, 5), (90, 5), (40, 10))),),
        (*_never(4, 5.5), *_fires(_TARGET, 6.5, 9), *_never(11)),
    ),
    Scenario(
        "JmsxMessagesUnaccounted",
        "three are missing, until the next report finds them",
        (Series("jmsx_report_unaccounted_messages", _REPORTED, held((0, 10), (3, 30), (0, 10))),),
        (*_never(9, 20), *_fires(_WHERE, 26, 39), *_never(41)),
    ),
    Scenario(
        "JmsxPipelineStale",
        "a report, and then none for four hours",
        (
            Series(
                "jmsx_report_timestamp_seconds",
                _TARGET,
                held((0, 240), (14400, 30), step=SLOW_STEP),
            ),
        ),
        (*_never(70, 119, 126), *_fires({"job": JOB}, 128, 235), *_never(241)),
        step=SLOW_STEP,
    ),
)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *(scenario for alert in BURNS for scenario in _burning(alert)),
    *_LOSS,
    *_PROGRESS,
    *_LINK_AND_WATCH,
    *_NEW,
    *_OF_WORKERS,
    *(scenario for one in _HAPPENINGS for scenario in _happening(*one)),
)
