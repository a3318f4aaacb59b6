"""
Segments as a fleet of consumers and producers would write them, with what happened known beforehand.

Half of the writers send, half consume; each message is sent once and done once, but one in 50 is delivered a second
time after a planned delay and one in 1,000 ends in the dead letter queue. Lines look as `jmsx_eventlog` writes them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: When the first hour begins: 20 November 2026, midnight, in seconds since the epoch.
MIDNIGHT: Final = 1_795_132_800
_DESTINATIONS: Final = ("orders", "payments", "mail", "stock")
_BATCH: Final = 25
_RETRIED, _DEAD = 50, 1000
_LINES_PER_MESSAGE: Final = 2 + 2 / _BATCH + 2 / _RETRIED + 1 / _DEAD


@dataclass
class Truth:
    """What happened, by destination."""

    events: int = 0
    sent: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    redelivered: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    handler_us: dict[str, int] = field(default_factory=dict)  #: summed over what was done


def write(
    root: Path, *, events: int, segments: int, hours: int, pairs: int = 2, seed: int = 1
) -> Truth:
    """
    Write about `events` lines in `segments` closed segments over `hours` hours below `root`.

    `pairs` of processes, one that sends and one that consumes, share the work in each hour.
    """
    chance = random.Random(seed)
    truth = Truth()
    slots = max(1, segments // (2 * pairs * hours))  # segments of one writer in an hour
    messages = round(events / _LINES_PER_MESSAGE / (slots * pairs * hours))
    for pair in range(pairs):
        producer, consumer = (
            _Writer(f"host{pair}-10-{pair:08x}"),
            _Writer(f"host{pair}-20-{pair:08x}"),
        )
        for hour in range(hours):
            folder = root / f"date=2026-11-{20 + hour // 24:02}" / f"hour={hour % 24:02}"
            folder.mkdir(parents=True, exist_ok=True)
            for slot in range(slots):
                begin = (MIDNIGHT + hour * 3600) * 1_000_000 + slot * 3_600_000_000 // slots
                step = 3_600_000_000 // slots // (messages + 1)
                last = hour == hours - 1 and slot == slots - 1
                sends, handled = _trade(
                    producer, consumer, range(begin, begin + messages * step, step), chance, truth
                )
                producer.seal(folder, sends, begin, last=last)
                consumer.seal(folder, handled, begin, last=last)
        truth.events += producer.seq + consumer.seq
    return truth


class _Writer:
    """One process, and how far its numbers have come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seq = 0
        self._first = 0
        self._opened = False

    def line(self, kind: str, at: int, rest: str) -> str:
        seq = self.seq
        self.seq += 1
        return (
            f'{{"v":1,"kind":"{kind}","writer":"{self.name}","seq":{seq},'
            f'"ts_us":{at},"mono_us":{at - 1795000000000000},{rest}}}\n'
        )

    def opened(self, at: int) -> Iterator[str]:
        """The lines that hold what is constant."""
        if not self._opened:
            self._opened = True
            yield self.line(
                "log.open",
                at,
                f'"service":"shop","host":"{self.name[:5]}","pid":10,"version":"0.1.0"',
            )
            yield self.line(
                "conn.up",
                at,
                '"session_id":"c1-s1","epoch":1,"server":"ActiveMQ/6.1.7","connect_us":1500,'
                '"broker":"127.0.0.1:61613","broker_kind":"classic","conn_id":"c1"',
            )

    def seal(self, folder: Path, lines: list[str], at: int, *, last: bool) -> None:
        """Write a closed segment; the last one of the process ends with `log.close`."""
        if last:
            lines.append(self.line("log.close", at + 3_599_000_000, '"dropped":0'))
        (folder / f"{self.name}-{self._first:012}.jsonl").write_text("".join(lines))
        self._first = self.seq


def _trade(
    producer: _Writer, consumer: _Writer, times: range, chance: random.Random, truth: Truth
) -> tuple[list[str], list[str]]:
    sends, handled = [*producer.opened(times[0])], [*consumer.opened(times[0])]
    where = '"session_id":"c1-s1","epoch":1,"dest":"queue://'
    uniform, bits = chance.random, chance.getrandbits
    for number, at in enumerate(times):
        dest = _DESTINATIONS[number % 4]
        key = f"{at // 1000:012x}{bits(80):020x}"
        sends.append(
            producer.line(
                "send",
                at,
                f'{where}{dest}","msg_key":"{key}","start_us":{at - 900},"outcome":"confirmed","size":256',
            )
        )
        here = f'{where}{dest}","consumer":"shop.{dest}"'
        received = at + int(uniform() * 4000)
        if number % _BATCH == 0:
            handled.append(
                consumer.line(
                    "recv.batch", received, f'{here},"messages":{_BATCH},"redelivered_messages":0'
                )
            )
        dead, retried = number % _DEAD == 7, number % _RETRIED == 11
        for attempt in (1, 2) if retried else (1,):
            started = received + int(uniform() * 9000) + (attempt - 1) * 1_000_000
            took = int(2000 * (1 + 9 * uniform() ** 4))
            settled = started + took + 150
            outcome = (
                "rolled_back"
                if retried and attempt == 1
                else "dead_lettered"
                if dead
                else "acknowledged"
            )
            failed = (
                ""
                if outcome == "acknowledged"
                else ',"error_type":"ValueError","error_place":"shop.py:12"'
            )
            handled.append(
                consumer.line(
                    "delivery",
                    settled,
                    f'{here},"msg_key":"{key}","msg_id":"ID:{producer.name}:{number}:1:1","attempt":{attempt},'
                    f'"redelivered":{"true" if attempt > 1 else "false"},"sent_us":{at // 1000 * 1000},'
                    f'"recv_us":{received},"start_us":{started},"end_us":{started + took},'
                    f'"outcome":"{outcome}"{failed},"size":256',
                )
            )
            if outcome == "rolled_back":
                handled.append(
                    consumer.line(
                        "redelivery.scheduled",
                        settled,
                        f'{here},"msg_key":"{key}","next_attempt":2,"delay_us":1000000,"blocking":true',
                    )
                )
                truth.redelivered[dest] = truth.redelivered.get(dest, 0) + 1
            elif outcome == "acknowledged":
                truth.done[dest] = truth.done.get(dest, 0) + 1
                truth.handler_us[dest] = truth.handler_us.get(dest, 0) + took
        if dead:
            handled.append(
                consumer.line(
                    "dlq",
                    settled,
                    f'{here},"msg_key":"{key}","msg_id":"ID:x","error_type":"ValueError",'
                    '"error_place":"shop.py:12","attempts":1,"by_copy":false,"reason":"max_redeliveries"',
                )
            )
            truth.dead[dest] = truth.dead.get(dest, 0) + 1
        if number % _BATCH == _BATCH - 1:
            handled.append(
                consumer.line(
                    "ack.batch", settled, f'{here},"messages":{_BATCH},"trigger":"threshold"'
                )
            )
        truth.sent[dest] = truth.sent.get(dest, 0) + 1
    return sends, handled
