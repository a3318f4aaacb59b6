"""The brokers that are ill-treated: a queue `dlqs.*` of theirs can be full, and then refuses what is sent to it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Self

from jmsx.core.frames import Frame
from jmsx_broker import ArtemisBroker
from jmsx_broker.wire import Wire
from tests.integration.broker_support import changed_classic, queue_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx_broker.artemis_recipe import Setting
    from jmsx_broker.local import LocalBroker

#: Bytes that a dlq takes before it is full: more than a round's dead letters have, each with its traceback, of which
#: Artemis counts two bytes a letter (six of them were more than 48 KiB); and less than it puts into a file (100 KiB).
_LIMIT: Final = 96 * 1024

_POLICY: Final = f"""
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="dlqs.>" producerFlowControl="true" memoryLimit="{_LIMIT}">
        <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>
      </policyEntry>
    </policyEntries></policyMap></destinationPolicy>
    """


def _classic(*, tls: bool, patient: bool) -> LocalBroker:  # noqa: ARG001 - it counts nothing
    return changed_classic(
        ("<plugins>", f"{_POLICY}<plugins>"),
        ("      <systemUsage>", '      <systemUsage sendFailIfNoSpace="true">'),
        tls=tls,
    )


def _artemis(*, tls: bool, patient: bool) -> LocalBroker:
    limits: dict[str, Setting] = {"max-size-bytes": _LIMIT, "address-full-policy": "FAIL"}
    attempts: dict[str, Setting] = {"max-delivery-attempts": -1} if patient else {}
    return ArtemisBroker(address_settings={"dlqs.#": limits, "#": attempts}, tls=tls)


_KINDS: Final[dict[str, Callable[..., LocalBroker]]] = {"classic": _classic, "artemis": _artemis}

KINDS: Final = tuple(_KINDS)

#: Of Classic, of Artemis, and of jmsx where Artemis does not say which is its own.
DEAD_LETTERS: Final = ("ActiveMQ.DLQ", "DLQ", "jmsx.DLQ")


class Stable:
    """
    Brokers of one kind, as many as a case wants; a context manager that ends them.

    `patient`: they make no dead letters by their own count of deliveries, as jmsx advises.
    """

    def __init__(self, kind: str, *, tls: bool = False, patient: bool = False) -> None:
        self.tls = tls
        self.kind = kind
        self._patient = patient
        self._brokers: list[LocalBroker] = []
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def take(self, count: int) -> list[LocalBroker]:
        """This many of them, running."""
        while len(self._brokers) < count:
            broker = _KINDS[self.kind](tls=self.tls, patient=self._patient)
            self._brokers.append(self._open.enter_context(broker))
        taken = self._brokers[:count]
        for broker in taken:
            if not broker.running:
                broker.start()
        return taken

    def discard(self) -> None:
        """End them all; the next are new, and know nothing of what these went through."""
        self._brokers.clear()
        self._open.close()


@contextlib.contextmanager
def full(broker: LocalBroker, dlq: str) -> Iterator[None]:
    """The queue `dlq` takes nothing in the block."""
    with Wire(broker.url) as wire:
        head = {**queue_headers(wire, dlq), "persistent": "true", "filler": "yes"}
        # with its length it is no text, and has no more bytes than these
        wire.request(Frame("SEND", {**head, "content-length": f"{_LIMIT}"}, b"x" * _LIMIT))
    try:
        yield
    finally:
        with Wire(broker.url) as wire:
            head = {"id": "filler", "ack": "client", "selector": "filler = 'yes'"}
            wire.send(Frame("SUBSCRIBE", {**queue_headers(wire, dlq), **head}))
            message = wire.receive("MESSAGE")
            wire.request(Frame("ACK", {"id": message.headers["ack"]}))
