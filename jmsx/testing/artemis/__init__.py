"""ActiveMQ Artemis, as far as STOMP can see it."""
