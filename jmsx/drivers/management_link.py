"""Asks a broker's management: each inquiry has a link of its own, which is closed at its end."""

from __future__ import annotations

import uuid
from typing import Any, TypeVar

from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame
from jmsx.core.management import Inquiry, Management, Question
from jmsx.core.requests import silent
from jmsx.drivers.machine import Machine
from jmsx.drivers.request_link import RequestLink, bounded
from jmsx.errors import BrokerError, BrokerTimeoutError, JmsxError, LinkError

T = TypeVar("T")


class CannotAskError(Exception):
    """
    The broker cannot, or may not, be asked; `cause` says why.

    `reached`: it is there. `cut`: the link was lost during a question, which says nothing of the answer.
    """

    def __init__(self, cause: JmsxError, *, reached: bool = True) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.cut = reached and isinstance(cause, LinkError)
        self.reached = reached and not self.cut


def conduct(
    inquiry: Inquiry[T],
    *,
    address: BrokerAddress,
    options: ConnectionOptions,
    dialect: Dialect,
    management: Management,
    machine: Machine,
    patience: float | None = None,
) -> T:
    """
    Return the result of the inquiry; raises what it raises, and CannotAskError if the broker cannot be asked.

    Takes at most `connect_timeout` or LIMIT, and `patience` (seconds; None: PATIENCE) for each answer.
    """
    link = _ManagementLink(
        address, bounded(options), dialect, management, machine, patience=patience
    )
    try:
        _begin(link)
        result = _answered(inquiry, link)
        link.end()
        return result
    finally:
        link.drop()


def _begin(link: _ManagementLink) -> None:
    try:
        link.connect()
    except (LinkError, BrokerTimeoutError) as error:
        raise CannotAskError(error, reached=False) from error
    except JmsxError as error:
        raise CannotAskError(error) from error
    try:
        link.listen()
    except JmsxError as error:
        raise CannotAskError(error) from error


class _ManagementLink(RequestLink):
    """One question after the other on one link."""

    def __init__(
        self,
        address: BrokerAddress,
        options: ConnectionOptions,
        dialect: Dialect,
        management: Management,
        machine: Machine,
        *,
        patience: float | None,
    ) -> None:
        super().__init__(address, options, dialect, machine, patience=patience)
        self._management = management
        self._answers = f"jmsx.answers.{uuid.uuid4().hex}"

    def listen(self) -> None:
        """Subscribe to the destination for the answers."""
        self.request(self._management.listen(self._answers), self._answers)

    def ask(self, question: Question | Frame) -> Any:
        """Ask, and return the answer of the broker; None for a Frame, which it only has to confirm."""
        if isinstance(question, Frame):
            return self.request(question, self._answers)
        self.send(self._management.ask(question, self._answers))
        answer = self.shown(self._answers, "SEND", question.operation)
        return self._management.told(question, answer)


def _answered(inquiry: Inquiry[T], link: _ManagementLink) -> T:
    """
    Ask what the inquiry wants to know; an error that it does not catch ends it.

    So does an answer that it cannot read: other versions of a broker may answer otherwise, and a broker may lie. So
    does a missing answer: if it came later, it would be taken for that to the next question.
    """
    try:
        return _converse(inquiry, link)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        odd = f"{link.broker} told what cannot be read ({type(error).__name__}: {error})"
        raise CannotAskError(BrokerError(odd)) from error


def _converse(inquiry: Inquiry[T], link: _ManagementLink) -> T:
    try:
        question = next(inquiry)
        while True:
            try:
                told = link.ask(question)
            except JmsxError as error:
                if silent(error):
                    raise CannotAskError(error) from error
                question = _refuse(inquiry, error)
            else:
                question = inquiry.send(told)
    except StopIteration as end:
        result: T = end.value
        return result


def _refuse(inquiry: Inquiry[T], error: JmsxError) -> Question | Frame:
    """Raise the error of a question within the inquiry, and return the next question."""
    try:
        return inquiry.throw(error)
    except JmsxError as raised:
        if raised is error:
            raise CannotAskError(error) from error
        raise
