"""The ways that are compared: who takes or sends the messages, by which calls, with which acknowledgements."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

#: The modes that a consumer is measured in. `client100` acknowledges every hundredth message, `txN` commits every Nth.
MODES: Final = ("auto", "dups_ok", "individual", "client100", "optimized", "tx1", "tx100")

#: Those of an app, which acknowledges or commits each message by itself in the others.
APP_MODES: Final = ("auto", "dups_ok", "individual", "optimized")

#: What a plain STOMP client does in place of each mode.
SAME_ACKS: Final = {
    "auto": "each",
    "dups_ok": "each",
    "individual": "each",
    "client100": "cumulative",
    "optimized": "cumulative",
    "tx1": "tx1",
    "tx100": "tx100",
}

#: How messages are sent: each one confirmed, many at a time confirmed, a hundred a transaction, not confirmed.
SENDING: Final = ("each", "pipelined", "tx100", "unconfirmed")

#: One message at a time is so many times slower that fewer are enough.
SLOW: Final = 40

#: So is what goes at a steady rate, and what the broker writes to its disk one by one.
STEADY: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One client, doing one thing."""

    work: str  #: `consume`, `produce` or `latency`
    who: str  #: `raw`, `stomp.py`, `stompman`, `java`, `java core` or `jmsx`
    mode: str = ""  #: of MODES or SENDING; of `SAME_ACKS` for a plain client
    face: str = ""  #: `receive`, `listener` or `app`; plain clients have none
    observers: str = ""  #: `metrics`, `log` or `both`; or a `ledger`, which counts hand-outs
    asynchronous: bool = False  #: the handler is an async function

    @property
    def label(self) -> str:
        """What it is called in tables."""
        words = (self.who, self.face, self.mode, "async" if self.asynchronous else "")
        seen = f"+ {self.observers}" if self.observers else ""
        return " ".join(word for word in (*words, seen) if word)

    @property
    def share(self) -> int:
        """It is measured with one message for so many of the others'."""
        if self.mode == "tx1" or (self.work == "produce" and self.mode == "each"):
            return SLOW
        return STEADY if self.work == "latency" or self.mode == "pipelined" else 1

    def told(self, **place: Any) -> dict[str, Any]:
        """What its process is told; `place`: where the messages are, and how many."""
        return {**asdict(self), **place}


def plain(mode: str) -> list[str]:
    """The clients besides Java's and ours that can do that."""
    return ["raw", "stomp.py", "stompman"] if mode in ("each", "cumulative") else ["raw"]


def javas(broker: str) -> list[str]:
    """The Java clients for a kind of broker."""
    return ["java", "java core"] if broker == "artemis" else ["java"]


def consuming(broker: str) -> list[Way]:
    """All modes and faces of a consumer, and everybody else's."""
    others = dict.fromkeys(SAME_ACKS.values())
    ways = [Way(work="consume", who=who, mode=mode) for mode in others for who in plain(mode)]
    ways += [
        Way(work="consume", who=who, face="receive", mode=mode)
        for who in javas(broker)
        for mode in MODES
        if (who, mode) != ("java core", "optimized")
    ]
    ways += [
        Way(work="consume", who="jmsx", face=face, mode=mode)
        for face in ("receive", "listener", "app")
        for mode in (APP_MODES if face == "app" else MODES)
        if face == "receive" or mode != "tx1"
    ]
    return [*ways, Way(work="consume", who="jmsx", face="app", mode="auto", asynchronous=True)]


def observed(_broker: str) -> list[Way]:
    """What observers cost, in the modes with the most events."""
    ways = [Way(work="consume", who="stomp.py", mode="each")]
    return ways + [
        Way(work="consume", who="jmsx", face=face, mode="auto", observers=observers)
        for face in ("receive", "listener", "app")
        for observers in ("", "metrics", "log", "both", "ledger")
    ]


def producing(broker: str) -> list[Way]:
    """How messages are sent."""
    ways = []
    for mode in SENDING:
        stompman = ("stompman",) if mode in ("tx100", "unconfirmed") else ()
        everybody = ("raw", "stomp.py", *stompman, *javas(broker), "jmsx")
        ways += [Way(work="produce", who=who, mode=mode) for who in everybody]
        ways.append(Way(work="produce", who="jmsx", mode=mode, observers="both"))
    return ways


def waiting(_broker: str) -> list[Way]:
    """Lone messages, at a steady rate."""
    ways = [Way(work="latency", who=who) for who in ("raw", "stomp.py", "stompman", "java")]
    faces = [Way(work="latency", who="jmsx", face=face) for face in ("listener", "receive", "app")]
    return [*ways, *faces, Way(work="latency", who="jmsx", face="app", observers="both")]


#: The ways of each suite, for a kind of broker.
SUITES: Final = {
    "consume": consuming,
    "observers": observed,
    "produce": producing,
    "latency": waiting,
}


def counterparts(way: Way, broker: str) -> list[Way]:
    """Whom a way of ours is compared with."""
    if way.observers:
        bare = Way(work=way.work, who=way.who, face=way.face, mode=way.mode)
        return [bare, Way(work=way.work, who="stomp.py", mode=SAME_ACKS.get(way.mode, way.mode))]
    if way.asynchronous:
        return [Way(work=way.work, who=way.who, face=way.face, mode=way.mode)]
    if way.work != "consume":
        return [
            Way(work=way.work, who=who, mode=way.mode)
            for who in ("raw", "stomp.py", "stompman", *javas(broker))
        ]
    acks = SAME_ACKS[way.mode]
    # stomp.py waits for nothing on the thread that reads, so its cumulative ACKs stand for its transactions, too
    few = "cumulative" if acks == "tx100" else acks
    return [
        Way(work="consume", who="raw", mode=acks),
        *(Way(work="consume", who=who, mode=few) for who in ("stomp.py", "stompman")),
        *(Way(work="consume", who=who, face="receive", mode=way.mode) for who in javas(broker)),
    ]
