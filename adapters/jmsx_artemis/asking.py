"""Questions to the management API of a session's broker: for counts, checks and dead letters."""

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
    """Return whether the session's user allows jmsx to use the broker's management (`use_management`)."""
    return link_of(session).options.use_management


def ask(session: Session, inquiry: Inquiry[T], patience: float | None = None) -> T:
    """
    Conduct the inquiry on a link of its own and return its result; raises CannotAskError if the broker cannot be asked.

    Each answer may take `patience` seconds (None: as long as `RequestLink` allows).
    """
    link = link_of(session)
    # The link lives for a few questions only, and nobody sends heart-beats on it
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
    """Do what `ask` does, but return None if the broker may not be asked or does not answer. Raises JmsxError."""
    if not may_ask(session):
        return None
    try:
        return ask(session, inquiry)
    except CannotAskError as error:
        if error.reached:
            return None
        raise error.cause from error
