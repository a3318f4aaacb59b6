"""Killed again and again: `python -m tests.integration.relay URL IN OUT` sends on twice what it gets, transacted."""

from __future__ import annotations

import sys

import jmsx


def main(url: str, source: str, target: str) -> None:
    """Relay until nothing has come for two seconds."""
    with jmsx.Connection(url) as connection:
        connection.start()
        session = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
        consumer = session.create_consumer(jmsx.Queue(source))
        producer = session.create_producer(jmsx.Queue(target))
        while (message := consumer.receive(2.0)) is not None:
            for part in ("first", "second"):
                producer.send(jmsx.Message(f"{message.text} {part}"))
            session.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
