"""What ActiveMQ Artemis's management tells about queues, for `jmsx check`; `settings` has advice on their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx import Session
from jmsx.check.finding import Finding, Level
from jmsx.core.headers import whole
from jmsx.core.management import Inquiry
from jmsx.drivers.management_link import CannotAskError
from jmsx.errors import JmsxError
from jmsx.log import counted
from jmsx_artemis.asking import MANAGEMENT, ask, may_ask
from jmsx_artemis.dead_letter_access import dead_letter_queues
from jmsx_artemis.questions import Queue, address_settings, queues

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


#: What is wrong with a queue whose name is written as plain STOMP clients write destinations.
_REMOVED: Final = (
    "plain STOMP clients write a queue so: a minute after its last consumer the broker removes it, if it is empty, and"
    " what they send then is gone; set auto-delete-queues to false in the broker's address-setting until the last of"
    " them has moved"
)


def inspect(session: Session, names: Sequence[str]) -> Iterator[Finding]:
    """
    Yield how many messages and consumers each queue has, and how many dead letters wait.

    Dead letters are looked for where the broker's default settings and those of `names` put them, and in queues whose
    names say dead letters.
    """
    if not may_ask(session):
        return
    try:
        found = ask(session, _find(names))
    except (CannotAskError, JmsxError) as error:
        yield _not_visible("management", error)
        return
    yield Finding("management", Level.OK, "it answers")
    for name, queue in found.items():
        yield from _told(name, queue)
    plain = {name: queue for name, queue in found.items() if name.startswith("/queue/")}
    removed: list[str] = []
    dead: dict[str, int] = {}
    try:  # asked apart, as the user may lack the permission
        if plain:
            removed = ask(session, _removed(plain))
        dead = ask(session, dead_letter_queues(("#", *names)))
    except (CannotAskError, JmsxError) as error:
        yield _not_visible("dead letter queues", error)
    for name in removed:
        yield Finding(f"queue {name}", Level.WARNING, _REMOVED)
    for name, waiting in dead.items():
        if name not in found:
            level = Level.WARNING if waiting else Level.NOTE
            yield Finding(f"queue {name}", level, counted(waiting, "dead letter"))


def _told(name: str, queue: Queue | None) -> Iterator[Finding]:
    """Yield how much a queue holds, and when it deletes messages."""
    if queue is None:
        told = "does not exist yet; it is made at its first use"
    else:
        told = f"{_counted(queue['messageCount'], 'message')}, {_counted(queue['consumerCount'], 'consumer')}"
    yield Finding(f"queue {name}", Level.NOTE, told)
    if queue is not None:
        yield from (Finding(f"queue {name}", Level.WARNING, one) for one in _deleted(queue))


def _deleted(queue: Queue) -> Iterator[str]:
    """Yield when a queue deletes messages that nobody has acknowledged."""
    if queue["ringSize"] != "-1":
        kept = _counted(queue["ringSize"], "message")
        yield f"it keeps {kept} only (ring-size): for a newer one the oldest is deleted"
    if queue["lastValue"] == "true":
        yield "it keeps the newest message of each key only (last-value): for it an older one is deleted"
    if queue["purgeOnNoConsumers"] == "true":
        yield (
            "it is emptied when its last consumer ends, or loses its link (purge-on-no-consumers): what waits, and what"
            " the consumer had, is deleted"
        )


def _not_visible(check: str, error: Exception) -> Finding:
    return Finding(check, Level.WARNING, f"not visible: {error}; {MANAGEMENT.remedy}")


def _counted(told: str, thing: str) -> str:
    """Return the broker's number `told` with its noun in singular or plural."""
    number = whole(told)
    return f"{told} {thing}s" if number is None else counted(number, thing)


def _find(names: Sequence[str]) -> Inquiry[dict[str, Queue | None]]:
    """Return the queue of each name, None if it does not exist; without names the broker is asked something anyway."""
    found: dict[str, Queue | None] = {}
    for name in names:
        listed = yield from queues("NAME", name)
        found[name] = listed[0] if listed else None
    if not names:
        yield from queues("NAME", "jmsx")
    return found


def _removed(found: Mapping[str, Queue | None]) -> Inquiry[list[str]]:
    """Return which of these queues the broker removes while nobody reads them (BROKER.md A76)."""
    removed = []
    for name, queue in found.items():
        settings = yield from address_settings(name)
        if settings.auto_delete_queues if queue is None else queue["autoDelete"] == "true":
            removed.append(name)
    return removed
