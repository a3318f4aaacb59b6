"""Handlers of batches: many messages in one call are settled together, but each failed message on its own."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from jmsx.app.parameters import InvalidMessagesError
from jmsx.app.registration import Consumer
from jmsx.app.worker import NOT_CALLED, Worker
from jmsx.core.durations import seconds
from jmsx.core.ledger import StoreKey
from jmsx.core.modes import AcknowledgeMode
from jmsx.errors import ConfigurationError, raised_with
from jmsx.jms.failures import HandlerCall
from jmsx.jms.gathering import Gathering
from jmsx.jms.message import Message
from jmsx.jms.outcomes import (
    NOT_OF_IT,
    BatchError,
    Discard,
    Duplicate,
    Reject,
    Undone,
    Unhandled,
    failure_of,
    told_by,
)
from jmsx.jms.translation import delivery_of
from jmsx.log import logger
from jmsx.stores.idempotency import BatchStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: The outcome of each message: None if it was handled, else the error with which it failed.
Outcomes = dict[Message, BaseException | None]

#: Why a Discard or Duplicate does not settle a whole batch; for the log.
_NOT_FOR_ALL: Final = (
    "Discard or Duplicate was raised for a batch of several, and does not say for which, so all come again, one by one:"
    " raise BatchError({message: Discard()})"
)

_log = logger("jmsx.app")


class BatchWorker(Worker):
    """A worker whose handler takes a list of messages."""

    @cached_property
    def _gathering(self) -> Gathering:
        return Gathering(self._link)

    @staticmethod
    def _mode(consumer: Consumer) -> AcknowledgeMode:
        """Return the mode of its session: one in which each message can be settled, or given back, by itself."""
        return consumer.mode.does.in_batches or consumer.mode

    def rest(self, timeout: float) -> bool:
        """Begin no further batch, and wait for the running one; a batch that is being filled is handled as it is."""
        self._leaving.set()
        self._gathering.hurry()
        return super().rest(timeout)

    def _listen(self, message: Message) -> None:
        consumer = self.consumer
        patience = seconds("batch_timeout", consumer.batch_timeout)
        most = 1 if self._gate.one_only else consumer.batch or 1
        batch = self._gathering.gather(message, most, patience, self._leaving.is_set)
        while batch:
            self._called_for(batch[0].message_id)
            try:
                undone = self._handle_batch(batch)
            finally:
                self._gate.ended(NOT_CALLED, 0.0)
                self.call = None
                self._check_session()
            batch = self._gathering.again(undone) if undone and self.transacted else []

    def _handle_batch(self, batch: list[Message]) -> list[Message]:
        """Call the handler, and settle each message as it went; returns those that come again and have not failed."""
        outcomes: Outcomes = dict.fromkeys(batch)
        calls = {message: HandlerCall(message, delivery_of(message)) for message in batch}
        self._ended = self._unsent = False
        try:
            self._enter(batch)
            self._do(batch, outcomes)
            if self.transacted and not self._ended:
                self._commit()
        except BaseException as error:
            if self._ended:  # the error is that of the commit
                raise
            self._end_unsent()
            self._fail(outcomes, error)
        else:
            if self.transacted:
                return []
        self._gathering.settle(outcomes)
        self._tell(calls, outcomes)
        return [message for message, error in outcomes.items() if isinstance(error, Undone)]

    def _do(self, batch: list[Message], outcomes: Outcomes) -> None:
        """Handle the messages that were not handled before, and note the outcomes; raises if all of them failed."""
        store: BatchStore | None = self.consumer.dedupe  # type: ignore[assignment]  # Consumer has looked
        if store is None:
            self._call_batch(batch, None, outcomes)
            return
        names: dict[Message, StoreKey] = {}
        for message in batch:
            name = self.consumer.identity(message, self._link.options.client_id)
            if name in names.values():  # a copy: decided when it is delivered again
                outcomes[message] = Unhandled()
            elif name is not None:
                names[message] = name

        def work(database: Any, new: frozenset[StoreKey]) -> list[StoreKey]:
            for message, name in names.items():
                if name not in new:
                    outcomes[message] = Duplicate()
            fresh = [one for one in batch if outcomes[one] is None]
            if fresh:
                self._call_batch(fresh, database, outcomes)
            return [name for one, name in names.items() if outcomes[one] is None]

        def attempt(handle: Callable[[Any, frozenset[StoreKey]], list[StoreKey]]) -> bool:
            store.once_each(list(names.values()), handle)
            return True

        uncalled = f"{type(store).__name__}.once_each() has not called the handler"
        self._when_back(attempt, work, uncalled)

    def _call_batch(self, batch: list[Message], database: Any, outcomes: Outcomes) -> None:
        """Call the handler with `batch`; where nothing can be undone alone, a part that failed fails all."""
        try:
            self._call_handler(list(batch), database)
        except InvalidMessagesError as error:
            # a middleware put it in the place of a message, and it is unknown of which
            if not error.rejects.keys() <= set(batch):
                reject = next(iter(error.rejects.values()))
                blamed = reject if len(batch) == 1 else told_by(reject)
                raise blamed from blamed.__cause__
            if self._is_one_transaction:
                raise BatchError(error.rejects) from None
            outcomes.update(error.rejects)
            fitting = [one for one in batch if one not in error.rejects]
            if fitting:
                self._call_batch(fitting, database, outcomes)
        except BatchError as error:
            if self._is_one_transaction or not set(error.failed) <= set(batch):
                raise
            for message in error.failed:
                outcomes[message] = self._judged(error, message)
            self._have_done(one for one in batch if outcomes[one] is None)

    @property
    def _is_one_transaction(self) -> bool:
        return self.transacted or getattr(self.consumer.dedupe, "connects", False)

    def _fail(self, outcomes: Outcomes, error: BaseException) -> None:
        """Note that nothing of the batch is done: what has no outcome yet has failed with `error`, or comes anew."""
        left = [message for message, outcome in outcomes.items() if outcome is None]
        if isinstance(error, BatchError) and set(error.failed) <= set(left):
            named, others = set(error.failed), Undone()
            for message in left:
                outcomes[message] = self._judged(error, message) if message in named else others
            return
        whole, wrong = error, ""
        if isinstance(error, BatchError):
            wrong = NOT_OF_IT
        elif isinstance(error, Discard | Duplicate) and len(left) > 1:
            wrong = _NOT_FOR_ALL  # else the other messages would be lost without a trace
        if wrong:
            whole = raised_with(ConfigurationError(wrong), error)
            whole.__cause__ = error
        # Which message failed is unknown: all are delivered again one by one, so that only that one is given up.
        judged = self.consumer.judged(whole)
        alone = len(left) == 1 or not isinstance(judged, Reject)
        outcomes.update(dict.fromkeys(left, judged if alone else whole))

    def _judged(self, error: BatchError, message: Message) -> BaseException:
        """Return what one of those that `error` names has failed with, as the consumer judges it."""
        return self.consumer.judged(raised_with(error.error_of(message), error))

    def _tell(self, calls: Mapping[Message, HandlerCall], outcomes: Outcomes) -> None:
        """Write one log line for each cause, about the first message that failed of it, and one for duplicates."""
        causes: dict[int, tuple[BaseException, list[Message]]] = {}
        for message, error in outcomes.items():
            if error is not None and not isinstance(error, Unhandled):
                causes.setdefault(id(error), (error, []))[1].append(message)
        duplicates = sum(1 for error in outcomes.values() if isinstance(error, Duplicate))
        if duplicates:
            _log.info(
                "duplicates: acknowledged as done before",
                consumer=self.consumer.name,
                messages=duplicates,
            )
        for error, messages in causes.values():
            if not isinstance(error, Duplicate):
                failed, core = f"{len(messages)} of {len(outcomes)}", self._link.engine.core
                calls[messages[0]].tell(
                    core, error, failure_of(error), "batch failed", failed=failed
                )
