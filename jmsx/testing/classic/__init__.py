"""
ActiveMQ Classic 6.1.8, as far as STOMP can see it.

NotImplementedError: consumers of composite and wildcard destinations, a `transformation` other than `jms-map-xml`,
periodic and cron schedules, retroactive consumers, pending limits, and selectors that calculate with strings.

Not modelled at all: virtual topics, flow control and memory limits, security, advisories, restarts, frame size limits,
heart-beats (`FakeBrokerServer` has them), and that a queue with both persistent and other messages gives out a
backlog's persistent ones first.
"""
