"""ActiveMQ Classic, as far as STOMP can see it."""
