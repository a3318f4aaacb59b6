"""
ActiveMQ Classic 6.1.8, as far as STOMP 1.2 can see it.

These raise NotImplementedError: other versions of STOMP, consumers of composite and wildcard destinations, exclusive
and retroactive consumers, priorities of consumers, pending limits, a `transformation` other than `jms-map-xml`,
periodic and cron schedules, and selectors that calculate with strings.

Not modelled at all: the scan for expired messages every 30 seconds, which also wakes a queue (here a message expires
when it would be dispatched), virtual topics, flow control and memory limits, security, advisories, restarts, frame size
limits, what the broker does when a client sends no heart-beats, and that a queue with both persistent and
non-persistent messages dispatches the persistent ones of its backlog first.
"""
