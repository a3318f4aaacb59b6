"""The alerts: on what somebody notices, each with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dashboards.src.model import Alert, Severity

_WHERE: Final = ("job", "destination")
_WHO: Final = ("job", "destination", "consumer")

SETTLED_IN_AN_HOUR: Final = "job_destination:jmsx_settled_messages:increase1h"  #: a recording rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """How fast a budget may be spent: both windows above `factor` times it."""

    record: str  #: the recorded ratio, without its level and window
    factor: float  #: how many times faster than the budget allows
    budget: float  #: the share that may go wrong, 0 to 1
    short_minutes: int
    long_minutes: int
    wait_minutes: int

    @property
    def ratios(self) -> tuple[str, str]:
        """Name the recorded ratio in both windows."""
        name = f"job_destination:{self.record}:ratio_rate"
        return name + _window(self.short_minutes), name + _window(self.long_minutes)

    @property
    def expr(self) -> str:
        """Word the condition, quiet while no more than 10 messages passed in an hour."""
        short, long = self.ratios
        limit = f"{self.factor} * {self.budget}"
        return f"{short} > {limit} and {long} > {limit} and {SETTLED_IN_AN_HOUR} > 10"


def _window(minutes: int) -> str:
    return f"{minutes // 60}h" if minutes >= 60 else f"{minutes}m"  # noqa: PLR2004 - an hour


BURNS: Final[dict[str, Burn]] = {
    "JmsxDeadLetterBudgetFastBurn": Burn(
        record="jmsx_dead_lettered_per_settled",
        factor=14.4,
        budget=0.001,
        short_minutes=5,
        long_minutes=60,
        wait_minutes=2,
    ),
    "JmsxDeadLetterBudgetSlowBurn": Burn(
        record="jmsx_dead_lettered_per_settled",
        factor=6,
        budget=0.001,
        short_minutes=30,
        long_minutes=360,
        wait_minutes=15,
    ),
    "JmsxLatencyBudgetFastBurn": Burn(
        record="jmsx_end_to_end_latency_over_30s",
        factor=14.4,
        budget=0.01,
        short_minutes=5,
        long_minutes=60,
        wait_minutes=2,
    ),
}

_DEAD_LETTER_CAUSES: Final = (
    "a release that cannot read the messages of another one",
    "a service that the handler calls is down for longer than all redeliveries take",
    "one sender's messages are malformed",
)
_DEAD_LETTER_STEPS: Final = (
    "See the reasons: `rejected` is about the message, `max_redeliveries` about the handler.",
    "See the errors by type, and read the cause in one dead letter's headers.",
    "Mend the cause first; only then move the dead letters back.",
)

_LOSS: Final = (
    Alert(
        name="JmsxDeadLetterBudgetFastBurn",
        expr=BURNS["JmsxDeadLetterBudgetFastBurn"].expr,
        wait="2m",
        severity=Severity.PAGE,
        labels=_WHERE,
        summary="{destination} dead-letters more than 1.4 % of its messages",
        description=(
            "Over the last 5 minutes and the last hour more than 14.4 times the budget of 0.1 % of"
            " the messages of {destination} in {job} were dead-lettered: a month's budget lasts"
            " two days."
        ),
        panel="Dead letters by reason",
        impact="Work is not done. The messages are kept in the dead letter queue.",
        causes=_DEAD_LETTER_CAUSES,
        steps=_DEAD_LETTER_STEPS,
    ),
    Alert(
        name="JmsxDeadLetterBudgetSlowBurn",
        expr=BURNS["JmsxDeadLetterBudgetSlowBurn"].expr,
        wait="15m",
        severity=Severity.TICKET,
        labels=_WHERE,
        summary="{destination} dead-letters more than 0.6 % of its messages, for hours",
        description=(
            "Over the last 30 minutes and the last 6 hours more than 6 times the budget of 0.1 % of"
            " the messages of {destination} in {job} were dead-lettered."
        ),
        panel="Dead letters by reason",
        impact="Work is not done, slowly. The messages are kept in the dead letter queue.",
        causes=_DEAD_LETTER_CAUSES,
        steps=_DEAD_LETTER_STEPS,
    ),
    Alert(
        name="JmsxDeadLetterPublishFailing",
        expr=(
            "sum without (instance, consumer) (increase(jmsx_dead_letter_failures_total[5m])) > 0"
        ),
        severity=Severity.PAGE,
        labels=_WHERE,
        summary="dead letters of {destination} cannot be written",
        description=(
            "A message of {destination} in {job} was to be dead-lettered and the broker did not"
            " confirm it. The original stays unacknowledged, so nothing is lost, and nothing gets on."
        ),
        panel="Dead letters not confirmed",
        impact="The message comes back for ever, and holds up those behind it.",
        causes=(
            "no permission to write to the dead letter queue",
            "the broker's store is full",
            "the connection died while the copy was under way",
        ),
        steps=(
            "Read the broker's log for the time of the failure: it says why it refused.",
            "Grant the permission or make room; the next delivery tries again by itself.",
        ),
    ),
    Alert(
        name="JmsxAcknowledgementsDropped",
        expr=(
            "sum without (instance, reason) (increase(jmsx_ack_dropped_messages_total[10m])) > 0"
        ),
        wait="5m",
        severity=Severity.TICKET,
        labels=_WHO,
        summary="acknowledgements of {consumer} on {destination} are dropped",
        description=(
            "Messages of {destination} were processed by {consumer} in {job}, and their connection"
            " was gone before the ACK: the broker delivers them again."
        ),
        panel="Acknowledgements dropped",
        impact="Work is done twice, unless the handler notices the redelivered flag.",
        causes=(
            "connections break while handlers run long",
            "a heart-beat shorter than the broker's pauses",
        ),
        steps=(
            "Compare with the disconnects by reason: do they come together?",
            "Make the handler idempotent, then look for what breaks the connections.",
        ),
    ),
    Alert(
        name="JmsxTransactionsInDoubt",
        expr=(
            "sum without (instance, outcome)"
            ' (increase(jmsx_transactions_total{outcome="in_doubt"}[15m])) > 0'
        ),
        severity=Severity.PAGE,
        labels=("job",),
        summary="nobody knows whether a transaction of {job} was committed",
        description=(
            "The connection of a session in {job} died between COMMIT and its RECEIPT. The broker"
            " may or may not have committed."
        ),
        panel="Transactions in doubt",
        impact="Sends of that transaction may be there twice, or not at all, if it is repeated blindly.",
        causes=("the broker died or was restarted", "a network that drops connections"),
        steps=(
            "Find the transaction's id in the event log.",
            "Look on the broker whether its sends are there; that decides.",
        ),
    ),
    Alert(
        name="JmsxSendFailing",
        expr=(
            "sum without (instance, outcome)"
            ' (increase(jmsx_sent_messages_total{outcome="error"}[10m])) > 0'
        ),
        severity=Severity.TICKET,
        labels=_WHERE,
        summary="sends to {destination} are refused",
        description="The broker answered a SEND of {job} to {destination} with an error.",
        panel="Sends by outcome",
        impact="The sender was told by an exception; what it did then is the application's matter.",
        causes=("no permission to write", "the broker's store or the queue is full"),
        steps=("Read the ERROR in the log: its message says what the broker minds.",),
    ),
)

_PROGRESS: Final = (
    Alert(
        name="JmsxLatencyBudgetFastBurn",
        expr=BURNS["JmsxLatencyBudgetFastBurn"].expr,
        wait="2m",
        severity=Severity.PAGE,
        labels=_WHERE,
        summary="more than 14 % of the messages of {destination} take over 30 s",
        description=(
            "Over the last 5 minutes and the last hour more than 14.4 times the budget of 1 % of the"
            " messages of {destination} in {job} took over 30 s from the broker to their ACK."
        ),
        panel="End-to-end latency",
        impact="Whoever waits for the work waits too long.",
        causes=(
            "more comes in than the consumers can take",
            "the handler, or what it calls, got slower",
            "redeliveries hold up the messages behind them",
        ),
        steps=(
            "See where the time goes: before the handler, in it, or after it?",
            "Before: add consumers, or lower the prefetch where one consumer hoards.",
            "In it: see the handler's quantiles, and what it calls.",
        ),
    ),
    Alert(
        name="JmsxConsumerStalled",
        expr=(
            "jmsx_unsettled_messages > 0"
            " and sum without (ack_mode, outcome) (rate(jmsx_settled_messages_total[5m])) == 0"
            " unless sum without (blocking) (jmsx_redelivery_pending_messages) > 0"
        ),
        wait="5m",
        severity=Severity.PAGE,
        labels=("job", "instance", "destination", "consumer"),
        summary="{consumer} on {destination} holds messages and settles none",
        description=(
            "{consumer} on {instance} has received messages of {destination} and has settled none"
            " for 10 minutes."
        ),
        panel="Time since the last message was settled",
        impact="These messages wait, and no other consumer gets them while this one holds them.",
        causes=(
            "the handler hangs",
            "a blocking redelivery waits for a long back-off",
            "a transaction is never committed, or a CLIENT session never acknowledges",
        ),
        steps=(
            "Take a stack dump of the process: what does the handler wait for?",
            "Stopping the process gives the messages back; others take over.",
        ),
    ),
    Alert(
        name="JmsxRedeliveryStorm",
        expr="job_destination_consumer:jmsx_redeliveries_per_processed:ratio_rate10m > 0.2",
        wait="10m",
        severity=Severity.TICKET,
        labels=_WHO,
        summary="{consumer} on {destination} spends its time on redeliveries",
        description=(
            "More than 20 % of what {consumer} does on {destination} in {job} ends in another"
            " delivery of the same message."
        ),
        panel="Redeliveries per delivery",
        impact="Throughput sinks; what fails long enough is dead-lettered.",
        causes=("something that the handler calls is down", "a poison message without a limit"),
        steps=(
            "See the errors by type.",
            "Errors that no retry mends belong in `give_up_on`: they are dead-lettered at once.",
        ),
    ),
    Alert(
        name="JmsxPrefetchImbalance",
        expr=(
            "max without (instance) (job_instance_destination:jmsx_prefetch_fill:ratio) > 0.8"
            " and min without (instance, consumer) (jmsx_unsettled_messages) == 0"
        ),
        wait="15m",
        severity=Severity.INFO,
        labels=_WHERE,
        summary="one consumer of {destination} hoards while another idles",
        description=(
            "An instance of {job} has filled over 80 % of its prefetch on {destination} for 15"
            " minutes while another consumer of it has nothing to do."
        ),
        panel="Prefetch filled",
        impact="Messages wait although there is somebody to work on them.",
        causes=("a prefetch far above what one handler does in a second",),
        steps=("Lower `consumer.prefetchSize` until the latency stops falling.",),
    ),
)

_LINK: Final = (
    Alert(
        name="JmsxConnectionDown",
        expr="jmsx_connection_up == 0",
        wait="2m",
        severity=Severity.PAGE,
        labels=("job", "instance", "broker"),
        summary="{instance} has lost {broker}",
        description="A session of {job} on {instance} has been without its socket to {broker} for 2 minutes.",
        panel="Connections",
        impact="Its consumers receive nothing and its sends fail.",
        causes=(
            "the broker is down",
            "the network between them is",
            "the credentials were changed",
        ),
        steps=("Is the broker up for others? If so, see the log of {instance} for its last try.",),
    ),
    Alert(
        name="JmsxConnectionFlapping",
        expr='sum without (reason) (increase(jmsx_disconnects_total{reason!="closed"}[15m])) > 6',
        severity=Severity.TICKET,
        labels=("job", "instance", "broker"),
        summary="{instance} keeps losing {broker}",
        description="{instance} of {job} lost its connection to {broker} more than 6 times in 15 minutes.",
        panel="Disconnects by reason",
        impact="Each loss delivers all unsettled messages again.",
        causes=(
            "`heartbeat`: pauses, of the process or the network, longer than the heart-beat",
            "`error_frame`: the broker refuses something and closes",
            "`io`: something between them cuts connections",
            "`protocol`: what came is no STOMP, or more than the limits allow: see the log for which",
        ),
        steps=("See the reasons, and the ERROR frames next to them.",),
    ),
    Alert(
        name="JmsxBrokerErrors",
        expr="increase(jmsx_broker_error_frames_total[10m]) > 0",
        severity=Severity.TICKET,
        labels=("job", "instance", "broker"),
        summary="{broker} sends ERROR to {instance}",
        description="In the last 10 minutes {broker} sent at least one ERROR frame to {instance} of {job}.",
        panel="ERROR frames",
        impact="A broker that sends ERROR usually closes the connection after it.",
        causes=("no permission", "a header that the broker cannot read", "a store that is full"),
        steps=("The log line `ErrorReceived` has the broker's own words.",),
    ),
)

_WATCH: Final = (
    Alert(
        name="JmsxClockSkew",
        expr="job_instance_destination_consumer:jmsx_negative_latency:ratio_rate15m > 0.01",
        wait="15m",
        severity=Severity.INFO,
        labels=("job", "instance", "destination", "consumer"),
        summary="the clock of {instance} is behind that of its senders or broker",
        description=(
            "More than 1 % of the messages of {destination} carry a time that was still to come when"
            " {consumer} on {instance} started on them."
        ),
        panel="Messages from the future",
        impact="Latencies are shown too small; these messages count as 0.",
        causes=("a host without time synchronisation", "a sender that sets `timestamp` itself"),
        steps=("Compare the clocks of {instance}, the broker and the senders.",),
    ),
    Alert(
        name="JmsxLabelOverflow",
        expr="increase(jmsx_label_overflow_total[1h]) > 0",
        severity=Severity.INFO,
        labels=("job", "instance", "label"),
        summary="{instance} has too many values of {label}",
        description="Values of {label} in {job} on {instance} are counted together as `__other__`.",
        panel="Label values replaced",
        impact="What is counted together cannot be told apart; nothing is missing from the sums.",
        causes=("names made from data, such as a queue for each customer",),
        steps=("Raise the observer's limit, or use one destination with a selector.",),
    ),
    Alert(
        name="JmsxEventLogIncomplete",
        expr="sum without (line) (increase(jmsx_event_log_dropped_events_total[10m])) > 0",
        severity=Severity.TICKET,
        labels=("job", "instance"),
        summary="the event log of {instance} lacks events",
        description="{job} on {instance} could not write all events to its event log.",
        panel="Events missing from the event log",
        impact="Messages are delivered all the same; the report calls these hours unverifiable.",
        causes=(
            "the disk is full, or gone",
            "the disk is slower than the events come",
            "the log was closed before the sessions were",
        ),
        steps=(
            "Make room where the event log lies: it goes on by itself, and tells how much it lacks.",
            "See `jmsx_event_log_errors_total`: above 0 the disk refused, else it was too slow.",
            "See by `line` what is missing: deliveries and sends are dropped last.",
        ),
    ),
    Alert(
        name="JmsxMetricsAbsent",
        expr="absent(jmsx_build_info)",
        wait="5m",
        severity=Severity.TICKET,
        labels=(),
        summary="no process shows metrics of jmsx",
        description="Prometheus has not seen any jmsx process for 5 minutes: no other alert can fire.",
        panel="Versions",
        impact="Whatever happens now, nobody is told.",
        causes=("nothing runs", "the endpoint was not started", "Prometheus does not scrape it"),
        steps=("Fetch `/metrics` by hand; then see Prometheus' list of targets.",),
    ),
)

ALERTS: Final[tuple[Alert, ...]] = (*_LOSS, *_PROGRESS, *_LINK, *_WATCH)
