"""
ActiveMQ Classic 6.1.8, as far as STOMP 1.2 can see it.

NotImplementedError: other versions of STOMP, consumers of composite and wildcard destinations, exclusive and
retroactive consumers, priorities of consumers, pending limits, a `transformation` other than `jms-map-xml`, periodic
and cron schedules, and selectors that calculate with strings.

Not modelled at all: the look for expired messages every 30 seconds, which also wakes a queue (a message expires when it
would be given out), virtual topics, flow control and memory limits, security, advisories, restarts, frame size limits,
what the broker does when a client does not beat, and that a queue with both persistent and other messages gives out a
backlog's persistent ones first.
"""
