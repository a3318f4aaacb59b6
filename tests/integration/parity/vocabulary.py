"""How each kind of broker names things, made comparable: ids, times and addresses of one run."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar


class Vocabulary(ABC):
    """The words of one run: ids are numbered in the order in which they turn up."""

    sending: ClassVar[dict[str, str]] = {}  #: headers that a SEND has here unless told otherwise
    subscribing: ClassVar[
        dict[str, str]
    ] = {}  #: headers that a SUBSCRIBE has here unless told otherwise

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def place(self, headers: dict[str, str]) -> str:
        """What of a MESSAGE decides its place among those of one look; chance does the rest, which is not compared."""
        del headers
        return ""

    @abstractmethod
    def plain(self, name: str, value: str) -> str:
        """The value of the header `name`, as every run says it."""

    @abstractmethod
    def plain_error(self, body: bytes) -> bytes:
        """The body of an ERROR, as far as it is compared."""

    def real_id(self, plain: str) -> str:
        """The id behind `ID-n` of the diary."""
        return next(real for real, name in self._ids.items() if name == plain)

    def _numbered(self, kind: str, real: str) -> str:
        count = sum(name.startswith(f"{kind}-") for name in self._ids.values())
        return self._ids.setdefault(real, f"{kind}-{count + 1}")


class ClassicVocabulary(Vocabulary):
    """ActiveMQ Classic."""

    def plain(self, name: str, value: str) -> str:
        """Ids, sockets, the broker's name and times are as any."""
        if name == "ack":
            return "ACK-ID"
        value = re.sub(r"MessageAck \{.*?\}", "MessageAck", value)
        value = re.sub(r"ID:[\w.:-]+", lambda match: self._numbered("ID", match[0]), value)
        value = re.sub(r"tcp://[\d.:]+", "TCP", value)
        value = re.sub(r"Broker: \w+", "Broker", value)
        return re.sub(r"\b\d{13}\b", "MS", value)

    def plain_error(self, body: bytes) -> bytes:
        """The class of the exception."""
        return re.split(rb"[:\n]", body, maxsplit=1)[0]


class ArtemisVocabulary(Vocabulary):
    """ActiveMQ Artemis: every word that it writes is compared, the headers' order aside."""

    sending: ClassVar = {"destination-type": "ANYCAST"}
    subscribing: ClassVar = {"subscription-type": "ANYCAST"}

    def place(self, headers: dict[str, str]) -> str:
        """Each queue has a thread of its own."""
        return headers["subscription"]

    def plain(self, name: str, value: str) -> str:
        """Message ids and consumers, sessions, sockets and times are as any."""
        if name in {"message-id", "ack", "message"}:
            value = re.sub(r"\b(\d+),(\d+)\b", self._handle, value)
        if name == "_AMQ_ORIG_MESSAGE_ID":
            return self._numbered("M", value)
        if name in {"session", "__AMQ_CID"}:
            return self._numbered("S", value)
        value = re.sub(r"127\.0\.0\.1:\d+", "SOCKET", value)
        return re.sub(r"\b\d{13}\b", "MS", value)

    def plain_error(self, body: bytes) -> bytes:
        """All of it."""
        return body

    def _handle(self, match: re.Match[str]) -> str:
        return f"{self._numbered('C', match[1] + ',')},{self._numbered('M', match[2])}"
