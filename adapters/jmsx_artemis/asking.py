"""Questions to the management of a session's broker: for counts, checks and dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from jmsx import Session
from jmsx.core.management import Inquiry
from jmsx.drivers.machine import Machine
from jmsx.drivers.management_link import CannotAskError, conduct
from jmsx.jms.session import link_of
from jmsx_artemis.management import ArtemisManagement

T = TypeVar("T")

MANAGEMENT: Final = ArtemisManagement()


def may_ask(session: Session) -> bool:
    """Return whether its user lets jmsx ask (`use_management`)."""
    return link_of(session).options.use_management


def ask(session: Session, inquiry: Inquiry[T], patience: float | None = None) -> T:
    """
    Return what the inquiry comes to, on a link of its own; raises CannotAskError if the broker cannot be asked.

    An answer is waited for as long as `patience` (seconds; None: as `RequestLink` does).
    """
    link = link_of(session)
    # It lives for some questions, and nobody sends heart-beats on it
    options = replace(link.options, heartbeat=(0.0, 0.0))
    return conduct(
        inquiry,
        address=link.address,
        options=options,
        dialect=link.dialect,
        management=MANAGEMENT,
        machine=Machine(),
        patience=patience,
    )


def ask_if_it_answers(session: Session, inquiry: Inquiry[T]) -> T | None:
    """Do as `ask` does, but return None if the broker may not be asked or does not answer. Raises JmsxError."""
    if not may_ask(session):
        return None
    try:
        return ask(session, inquiry)
    except CannotAskError as error:
        if error.reached:
            return None
        raise error.cause from error
