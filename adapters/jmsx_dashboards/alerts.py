"""The alerts, each on a symptom that users notice, and with instructions what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from jmsx_dashboards.model import FASTEST, Alert, Budget, Settings, Severity
from jmsx_dashboards.recordings import DEPTH, SETTLED_IN_AN_HOUR, late_ratio

if TYPE_CHECKING:
    from collections.abc import Callable

_WHERE: Final = ("job", "destination")
_WHO: Final = ("job", "destination", "consumer")
#: A query for runbooks: failures by queue, consumer and cause.
_WHY: Final = (
    "sum by (destination, consumer, reason, error_type) (increase(jmsx_failures_total[1h])) > 0"
)
#: A query for runbooks: the consumers whose application has messages in process.
_AT_WORK: Final = "sum by (instance, destination, consumer) (jmsx_in_process_messages) > 0"
#: Queries for runbooks: how long messages wait at the broker and in the buffer, and how long handlers take, in seconds.
_WHERE_TIME_GOES: Final = tuple(
    f"sum by (destination, consumer) (rate({name}_sum[10m]))"
    f" / sum by (destination, consumer) (rate({name}_count[10m]))"
    for name in ("jmsx_delivery_latency_seconds", "jmsx_process_duration_seconds")
)
#: A query for runbooks: failed attempts to connect, by process, broker and result.
_REFUSED: Final = (
    "sum by (instance, broker, result)"
    ' (increase(jmsx_connection_attempts_total{result!="ok"}[15m])) > 0'
)
#: A query for runbooks: lost connections, by process, broker and reason.
_LOST: Final = 'sum by (instance, broker, reason) (increase(jmsx_disconnects_total{reason!="closed"}[15m])) > 0'
_SLOW: Final = 6.0  #: how many times faster than allowed a budget is spent when there is a ticket


def happened(counter: str, minutes: int, *without: str) -> str:
    """
    Return PromQL for "`counter` has grown in so many minutes", summed over the labels `without`.

    For a process younger than that, the counter's whole value counts: `increase()` does not see the value with which a
    series begins, and would miss the first failure of a process that fails at once.
    """
    apart = ", ".join(without)
    return (
        f"sum without ({apart}) (increase({counter}[{minutes}m]) > 0"
        f" or {counter} > 0 and on (job, instance, worker)"
        f" time() - jmsx_start_timestamp_seconds < {minutes * 60})"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """A burn-rate alert: it fires if the error ratio exceeds `factor` times the budget in both windows."""

    record: Callable[[Budget], str]  #: the name of the recorded ratio of errors, without its window
    factor: float  #: how many times faster than the budget allows
    share: Callable[[Budget], float]  #: the share of messages that may go wrong, 0 to 1
    short: str
    long: str
    wait: str

    def expr(self, settings: Settings) -> str:
        """Return the PromQL condition, which never holds if at most 10 messages were settled in an hour."""
        own = settings.of_destination
        names = "|".join(_quoted(name) for name in own)
        others = f'{{destination!~"{names}"}}' if own else ""
        parts = [self._part(settings.budget, others)]
        parts += [self._part(budget, f'{{destination="{name}"}}') for name, budget in own.items()]
        return " or ".join(parts)

    def _part(self, budget: Budget, matchers: str) -> str:
        ratio, limit = self.record(budget), f"{self.factor:g} * {self.share(budget):g}"
        return (
            f"{ratio}{self.short}{matchers} > {limit} and {ratio}{self.long}{matchers} > {limit}"
            f" and {SETTLED_IN_AN_HOUR} > 10"
        )


def _quoted(name: str) -> str:
    """Return `name` as a part of a regular expression in a matcher."""
    return "".join(
        letter if letter.isalnum() or letter in "/:_-" else f"[{letter}]" for letter in name
    )


def _dead(_budget: Budget) -> str:
    return "job_destination:jmsx_dead_lettered_per_settled:ratio_rate"


BURNS: Final[dict[str, Burn]] = {
    f"Jmsx{what}Budget{pace}Burn": Burn(
        record=record, share=share, factor=factor, short=short, long=long, wait=wait
    )
    for what, record, share in (
        ("DeadLetter", _dead, lambda budget: budget.dead_letters),
        ("Latency", lambda budget: late_ratio(budget.seconds), lambda budget: budget.late),
    )
    for pace, factor, short, long, wait in (
        ("Fast", FASTEST, "5m", "1h", "2m"),
        ("Slow", _SLOW, "30m", "6h", "15m"),
    )
}


def _happened_as(counter: str, outcome: str, minutes: int) -> str:
    """Return what `happened` does, for the series with that outcome."""
    return happened(f'{counter}{{outcome="{outcome}"}}', minutes, "instance", "worker", "outcome")


_DEATHS_BURN: Final = Alert(
    name="JmsxDeadLetterBudgetFastBurn",
    expr="",
    severity=Severity.PAGE,
    labels=_WHERE,
    summary="{destination} spends its budget of dead letters 14 times too fast",
    description=(
        "Over the last 5 minutes and the last hour more than 14.4 times as many messages of"
        " {destination} in {job} were dead-lettered as its budget allows (0.1 %, if it has none of"
        " its own): a month's budget lasts two days."
    ),
    panel="Dead letters by reason",
    impact="Work is not done. The messages are kept in the dead letter queue.",
    causes=(
        "a release that cannot read the messages of another one",
        "a service that the handler calls is down for longer than all redeliveries take",
        "one sender's messages are malformed",
    ),
    steps=(
        "See the reasons: `rejected` is about the message, `max_redeliveries` about the handler.",
        "See the errors by type, and read the cause of one dead letter: in a copy's headers, or in the event log.",
        "Mend the cause first; only then move the dead letters back.",
    ),
    queries=(_WHY,),
    commands=(
        "jmsx dlq ls --broker BROKER",
        "jmsx dlq groups QUEUE --broker BROKER --events EVENTS",
        "jmsx dlq replay QUEUE --broker BROKER --dry-run",
    ),
)

_LOSS: Final = (
    _DEATHS_BURN,
    replace(
        _DEATHS_BURN,
        name="JmsxDeadLetterBudgetSlowBurn",
        severity=Severity.TICKET,
        summary="{destination} spends its budget of dead letters 6 times too fast, for hours",
        description=(
            "Over the last 30 minutes and the last 6 hours more than 6 times as many messages of"
            " {destination} in {job} were dead-lettered as its budget allows (0.1 %, if it has none of"
            " its own)."
        ),
        impact="Work is not done, slowly. The messages are kept in the dead letter queue.",
    ),
    Alert(
        name="JmsxDeadLetterPublishFailing",
        expr=(happened("jmsx_dead_letter_failures_total", 5, "instance", "worker", "consumer")),
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
        queries=(_WHY,),
    ),
    Alert(
        name="JmsxAcknowledgementsDropped",
        expr=(happened("jmsx_ack_dropped_messages_total", 10, "instance", "worker", "reason")),
        wait="5m",
        severity=Severity.TICKET,
        labels=_WHO,
        summary="acknowledgements of {consumer} on {destination} are dropped",
        description=(
            "Messages of {destination} were processed by {consumer} in {job}, and their connection"
            " was gone before the ACK: the broker delivers them again."
        ),
        panel="Acknowledgements dropped",
        impact="Work is done twice, unless the consumer knows what was done (`dedupe=`).",
        causes=(
            "connections break while handlers run long",
            "a heart-beat shorter than the broker's pauses",
        ),
        steps=(
            "Compare with the disconnects by reason: do they come together?",
            "Give the consumer a store of what was done (`dedupe=`), then look for what breaks the connections.",
        ),
        queries=(_WHY,),
    ),
    Alert(
        name="JmsxTransactionsInDoubt",
        expr=(_happened_as("jmsx_transactions_total", "in_doubt", 15)),
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
            "With `commit_markers=True` jmsx finds that out by itself, where it can.",
        ),
        queries=(_LOST,),
    ),
    Alert(
        name="JmsxSendFailing",
        expr=(_happened_as("jmsx_sent_messages_total", "error", 10)),
        severity=Severity.TICKET,
        labels=_WHERE,
        summary="sends to {destination} are refused",
        description="The broker answered a SEND of {job} to {destination} with an error.",
        panel="Sends by outcome",
        impact="The sender was told by an exception; what it did then is the application's matter.",
        causes=("no permission to write", "the broker's store or the queue is full"),
        steps=(
            "The sender's exception says what the broker minds.",
            "Where nobody waited for the answer (`confirm=False`), the log does: `send refused`.",
        ),
        queries=(_WHY,),
    ),
)

_PROGRESS: Final = (
    Alert(
        name="JmsxLatencyBudgetFastBurn",
        expr="",
        severity=Severity.PAGE,
        labels=_WHERE,
        summary="{destination} spends its budget of late messages 14 times too fast",
        description=(
            "Over the last 5 minutes and the last hour more than 14.4 times as many messages of"
            " {destination} in {job} were late as its budget allows (1 % over 30 s from the broker to"
            " the ACK, if it has none of its own)."
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
        queries=_WHERE_TIME_GOES,
    ),
    Alert(
        name="JmsxLatencyBudgetSlowBurn",
        expr="",
        severity=Severity.TICKET,
        labels=_WHERE,
        summary="{destination} spends its budget of late messages 6 times too fast, for hours",
        description=(
            "Over the last 30 minutes and the last 6 hours more than 6 times as many messages of"
            " {destination} in {job} were late as its budget allows (1 % over 30 s from the broker to"
            " the ACK, if it has none of its own)."
        ),
        panel="End-to-end latency",
        impact="Whoever waits for the work waits too long, now and then.",
        causes=(
            "consumers that just keep up, and fall behind at each peak",
            "a few messages that take much longer than the others",
        ),
        steps=(
            "See where the time goes: before the handler, in it, or after it?",
            "Before: add consumers. In it: give slow messages a queue and consumers of their own.",
        ),
        queries=_WHERE_TIME_GOES,
    ),
    Alert(
        name="JmsxOldestUnsettledTooOld",
        expr=(
            "max without (worker) (jmsx_oldest_unsettled_seconds) > 600"
            " unless sum without (worker, blocking) (jmsx_redelivery_pending_messages) > 0"
        ),
        wait="1m",
        seconds=(600,),
        severity=Severity.TICKET,
        labels=("job", "instance", "destination", "consumer"),
        summary="{consumer} on {destination} has held a message for 10 minutes",
        description=(
            "{consumer} on {instance} received a message of {destination} over 10 minutes ago and has"
            " not settled it, though none waits for a back-off; others may be settled beside it."
        ),
        panel="Oldest message not settled",
        impact="That message is not done, and nobody else gets it while this one holds it.",
        causes=(
            "one of several handlers hangs",
            "a transaction or a CLIENT session keeps a message open",
            "a prefetch far above what the handler does in 10 minutes",
        ),
        steps=(
            "Take a stack dump of the process: which handler waits, and for what?",
            "Stopping the process gives the message back; lower the prefetch if it merely waits its turn.",
        ),
        queries=(_AT_WORK,),
    ),
    Alert(
        name="JmsxBacklogWithoutConsumer",
        expr=(
            f"{DEPTH} > 0 and on (destination) max_over_time(jmsx_consumer_info[1d])"
            " unless on (destination) jmsx_open_subscriptions > 0"
            " unless on (destination) (jmsx_consumer_info and on (job, instance) jmsx_connection_up == 0)"
        ),
        wait="10m",
        severity=Severity.TICKET,
        labels=("destination",),
        summary="messages wait in {destination}, and nobody reads it",
        description=(
            "The broker has had messages of {destination} for 10 minutes, jmsx has read it within the"
            " last day, and no process of jmsx that Prometheus sees reads it now."
        ),
        panel="Messages waiting at the broker",
        impact="Work waits at the broker until somebody reads it.",
        causes=(
            "all its consumers were stopped, or a release no longer has them",
            "their processes are up and cannot subscribe",
        ),
        steps=("Start the consumers, or take their queue out of service on purpose.",),
        commands=("jmsx broker stats QUEUE --broker BROKER", "jmsx check BROKER"),
    ),
    Alert(
        name="JmsxConsumerStalled",
        # Messages behind a blocking redelivery delay must wait; behind a non-blocking one they must not, or it is a
        # stall.
        expr=(
            "sum without (worker) (jmsx_unsettled_messages)"
            " - sum without (worker, blocking)"
            ' (jmsx_redelivery_pending_messages{blocking="false"}) > 0'
            " and sum without (worker, ack_mode, outcome) (rate(jmsx_settled_messages_total[5m])) == 0"
            " unless sum without (worker, blocking)"
            ' (jmsx_redelivery_pending_messages{blocking="true"}) > 0'
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
            "a transaction is never committed, or a CLIENT session never acknowledges",
        ),
        steps=(
            "Take a stack dump of the process: what does the handler wait for?",
            "Stopping the process gives the messages back; others take over.",
        ),
        queries=(_AT_WORK,),
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
        queries=(_WHY,),
    ),
    Alert(
        name="JmsxPrefetchImbalance",
        expr=(
            "max without (instance) (job_instance_destination:jmsx_prefetch_fill:ratio) > 0.8"
            " and min without (instance, worker, consumer) (jmsx_unsettled_messages) == 0"
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
        steps=(
            "Lower `prefetch=` of the consumer until the latency stops falling.",
            "In the JMS API it is `consumer.prefetchSize` in the name of the destination, or `prefetch_policy`.",
        ),
    ),
)

_LINK: Final = (
    Alert(
        name="JmsxConnectionDown",
        expr="min without (worker) (jmsx_connection_up) == 0",
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
        queries=(_REFUSED,),
    ),
    Alert(
        name="JmsxConnectionFlapping",
        # Count moments and not sockets: each session has a socket, and a restart of the broker closes all at once.
        expr=(
            "max without (worker) (sum without (reason)"
            ' (changes(jmsx_disconnects_total{reason!="closed"}[15m]))) > 6'
        ),
        severity=Severity.TICKET,
        labels=("job", "instance", "broker"),
        summary="{instance} keeps losing {broker}",
        description=(
            "{instance} of {job} lost connections to {broker} at more than 6 moments of the last 15"
            " minutes, one or many at each."
        ),
        panel="Disconnects by reason",
        impact="Each loss delivers all unsettled messages again.",
        causes=(
            "`heartbeat`: pauses, of the process or the network, longer than the heart-beat",
            "`error_frame`: the broker refuses something and closes",
            "`io`: something between them cuts connections",
            "`protocol`: what came is no STOMP, or more than the limits allow: see the log for which",
        ),
        steps=("See the reasons, and the ERROR frames next to them.",),
        queries=(_LOST,),
    ),
    Alert(
        name="JmsxBrokerErrors",
        expr=happened("jmsx_broker_error_frames_total", 10, "worker"),
        severity=Severity.TICKET,
        labels=("job", "instance", "broker"),
        summary="{broker} sends ERROR to {instance}",
        description="In the last 10 minutes {broker} sent at least one ERROR frame to {instance} of {job}.",
        panel="ERROR frames",
        impact="A broker that sends ERROR usually closes the connection after it.",
        causes=("no permission", "a header that the broker cannot read", "a store that is full"),
        steps=(
            "The log of {instance} has the words of ERRORs that answer no call: `broker complained`.",
            "Those that answer one are the error of that call; `send refused` in the log, if nobody waited for it.",
        ),
    ),
)

_ANSWERS: Final = (
    Alert(
        name="JmsxCannotConnect",
        expr=(
            "sum without (worker, broker, result)"
            ' (increase(jmsx_connection_attempts_total{result!="ok"}[5m])) > 0'
            " unless on (job, instance) jmsx_connection_up"
        ),
        wait="2m",
        severity=Severity.PAGE,
        labels=("job", "instance"),
        summary="{instance} cannot connect to any broker",
        description=(
            "{instance} of {job} has tried to connect for 2 minutes and has had no connection since it"
            " was started, or since its sessions were closed."
        ),
        panel="Attempts to connect",
        impact="It does nothing at all.",
        causes=(
            "`refused`: the broker is down, or the address is wrong",
            "`credentials`: user or password were changed",
            "`tls`: a certificate is over, or of another authority",
            "`timeout`: something between them swallows packets, or the port is none of STOMP",
        ),
        steps=("See the attempts by result; the log of {instance} has the broker's own words.",),
        queries=(_REFUSED,),
        commands=("jmsx check BROKER",),
    ),
    Alert(
        name="JmsxConnectionSilent",
        # Tests with a shortened time scale do not scale these seconds: sockets have real timeouts.
        expr=(
            "time() - min without (worker) (jmsx_last_frame_received_timestamp_seconds)"
            " > max without (worker) (jmsx_silence_limit_seconds > 0) + 60"
        ),
        wait="1m",
        severity=Severity.TICKET,
        labels=("job", "instance", "broker"),
        summary="{instance} has heard nothing of {broker}, and holds on to it",
        description=(
            "A session of {job} on {instance} has heard nothing of {broker}, not even a heart-beat, for"
            " a minute longer than it should wait before it connects again."
        ),
        panel="Silence of the broker",
        impact="What it has received is held, and nothing new comes.",
        causes=(
            "the process is stopped (SIGSTOP, a debugger) or starved of processor time",
            "an extension in C holds the interpreter's lock",
            "an exception listener or an observer does not return",
        ),
        steps=("Take a stack dump of the process: what does the thread `jmsx-engine-…` wait for?",),
    ),
    Alert(
        name="JmsxReceiptTimeouts",
        expr=happened("jmsx_receipt_timeouts_total", 10, "worker"),
        severity=Severity.TICKET,
        labels=("job", "instance", "broker", "command"),
        summary="{broker} does not answer {command} of {instance} in time",
        description=(
            "In the last 10 minutes {broker} left at least one {command} of {instance} of {job} without"
            " an answer for the whole `request_timeout`."
        ),
        panel="Answers that did not come",
        impact="The caller got an error that leaves open whether it was done.",
        causes=(
            "the broker's store is slow or full: Classic holds producers back",
            "the connection is half open, and no heart-beats are agreed",
            "a pause of the broker longer than the timeout",
        ),
        steps=(
            "See the send's time to its receipt: is it slow for all?",
            "Look at the broker's memory and disk limits.",
        ),
        commands=("jmsx broker stats QUEUE --broker BROKER",),
    ),
    Alert(
        name="JmsxInstanceGone",
        expr="up == 0 and on (job, instance) max_over_time(jmsx_build_info[1h])",
        wait="2m",
        least=10.0,  # a scrape of a busy process may take as long, even in tests on a shorter time scale
        severity=Severity.TICKET,
        labels=("job", "instance"),
        summary="{instance} of {job} is gone",
        description=(
            "{instance} of {job} ran jmsx within the last hour, is still among Prometheus' targets, and"
            " has not answered for 2 minutes."
        ),
        panel="Instances gone",
        impact="The others do its work, if there are others; what it held is delivered again.",
        causes=("it crashed or was killed", "its host is gone", "it is too busy to answer"),
        steps=(
            "See its log for its last lines, and whether it is started again.",
            "Take it out of Prometheus' targets if it was stopped on purpose.",
        ),
    ),
    Alert(
        name="JmsxWorkerSilent",
        # A supervisor shows 0 only for a worker that should answer: not while it starts, drains, or awaits a restart.
        expr="jmsx_worker_up == 0",
        wait="2m",
        least=10.0,  # as of an instance
        severity=Severity.TICKET,
        labels=("job", "instance", "worker"),
        summary="worker {worker} of {instance} does not answer",
        description=(
            "Worker {worker} of {instance} of {job} is there, and has not answered its supervisor for 2 minutes."
            " None of its numbers are shown while it does not, so no other alert is about it."
        ),
        panel="Workers that do not answer",
        impact=(
            "The others do its work, more slowly. What it held comes to them when the broker has missed its"
            " heart-beats; where none are agreed, or a thread still sends them, it lies there until the worker ends."
        ),
        causes=(
            "the process is stopped (SIGSTOP, a debugger) or starved of processor time",
            "it waits for a disk or a network file system that does not answer",
            "an extension in C holds the interpreter's lock",
            "a dead lock, in an observer or in what it calls",
            "it was started over a minute ago, and what it imports waits for something",
        ),
        steps=(
            "`/healthz` of {instance} names its process, as `pid`.",
            "If `ps` shows it as stopped (`T`), `kill -CONT` has it go on.",
            "Else take a stack dump of it: what does it wait for?",
            "The supervisor does not end it, but starts another one after `kill -9`.",
            "What it held comes again then, also what a handler has half done.",
        ),
        queries=(
            (
                "sum by (instance, worker, destination, consumer) (max_over_time(jmsx_unsettled_messages[1h]))"
                " and on (instance, worker) jmsx_worker_up == 0"
            ),
        ),
    ),
    Alert(
        name="JmsxWorkersDying",
        # Count moments and not deaths: what kills all workers at once counts once.
        expr="changes(jmsx_worker_restarts_total[15m]) > 2",
        severity=Severity.TICKET,
        labels=("job", "instance"),
        summary="workers of {instance} die again and again",
        description=(
            "Workers of {instance} of {job} died at more than 2 moments of the last 15 minutes, and were started again."
        ),
        panel="Workers started again",
        impact=(
            "Each death has what the worker held delivered again, also what a handler has half done. The longest"
            " pause before a start is 30 s; if all die, hardly anything is done."
        ),
        causes=(
            "SIGKILL: the machine or the container is out of memory",
            "SIGSEGV, SIGABRT: an extension in C, perhaps with one message, which kills each worker that gets it",
            "an exit code: the handler, or what it imports, ends the process",
        ),
        steps=(
            "The log of {instance} tells of each death its signal or exit code, and after how many seconds.",
            "By one message: with a `ledger=` such deaths count as attempts, and it becomes a dead letter.",
            "By memory: fewer workers, a lower prefetch, or a higher limit.",
        ),
        queries=(
            (
                "sum by (instance, destination, consumer)"
                ' (increase(jmsx_received_messages_total{redelivered="true"}[15m])) > 0'
            ),
        ),
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
        name="JmsxBrokerClockSkew",
        # The clocks are compared by an exchange of at most two seconds, so more than one second is no mere delay.
        expr="abs(max without (worker) (jmsx_broker_clock_ahead_seconds)) > 1",
        wait="15m",
        severity=Severity.INFO,
        labels=("job", "instance", "broker"),
        summary="the clocks of {instance} and {broker} differ by over a second",
        description=(
            "{broker} stamped a message of {instance} of {job} with a time that is over a second off that"
            " of {instance}'s own clock."
        ),
        panel="The broker's clock",
        impact="Latencies are shown too large or too small by that; times to live end early or late.",
        causes=("a host without time synchronisation",),
        steps=(
            "Compare both hosts with a third clock: the one that is off needs its synchronisation.",
        ),
    ),
    Alert(
        name="JmsxLabelOverflow",
        expr="sum without (worker) (increase(jmsx_label_overflow_total[1h])) > 0",
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
        expr=happened("jmsx_event_log_dropped_events_total", 10, "worker", "line"),
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
        name="JmsxEventLogStale",
        expr="max without (worker) (jmsx_event_log_unsynced_seconds) > 60",
        wait="1m",
        seconds=(60,),
        severity=Severity.TICKET,
        labels=("job", "instance"),
        summary="the event log of {instance} has not reached the disk for a minute",
        description=(
            "{job} on {instance} has lines in its event log that were not forced to the disk for over a"
            " minute."
        ),
        panel="Event log not on the disk",
        impact="A loss of power would cost these lines; a kill of the process costs none of them.",
        causes=("the disk is very slow", "the writer's thread waits for a network file system"),
        steps=("Look at the disk under the event log; see `jmsx_event_log_errors_total`.",),
    ),
    Alert(
        name="JmsxMessagesUnaccounted",
        expr="max without (instance) (jmsx_report_unaccounted_messages) > 0",
        wait="15m",
        severity=Severity.PAGE,
        labels=_WHERE,
        summary="messages of {destination} are missing",
        description=(
            "The last report found messages that were sent to {destination} and of which no log says"
            " what became of them, past their deadline."
        ),
        panel="Messages without an account",
        impact="They may be lost.",
        causes=(
            "a consumer without jmsx, or without an event log, took them",
            "somebody purged the queue",
            "the broker lost its store",
        ),
        steps=(
            "See the report: it lists the keys, and says what it could not read.",
            "Follow one key through all logs.",
        ),
        commands=("jmsx report EVENTS --out DIR", "jmsx explain KEY --events EVENTS"),
    ),
    Alert(
        name="JmsxPipelineStale",
        expr="time() - max without (instance) (jmsx_report_timestamp_seconds) > 7200",
        wait="5m",
        seconds=(7200,),
        severity=Severity.TICKET,
        labels=("job",),
        summary="there was no report for two hours",
        description="The last report whose numbers {job} shows is older than two hours.",
        panel="Age of the last report",
        impact="A loss would not be noticed.",
        causes=("the job that makes it failed or does not run", "its file is not collected"),
        steps=("Run `jmsx report` by hand: it says what is wrong.",),
        commands=("jmsx report EVENTS --out DIR --metrics FILE",),
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


def alerts(settings: Settings) -> tuple[Alert, ...]:
    """Return all alerts, with the budgets of `settings`."""
    return tuple(
        replace(one, expr=burn.expr(settings), wait=burn.wait)
        if (burn := BURNS.get(one.name))
        else one
        for one in (*_LOSS, *_PROGRESS, *_LINK, *_ANSWERS, *_WATCH)
    )


#: With the default budget.
ALERTS: Final = alerts(Settings())
