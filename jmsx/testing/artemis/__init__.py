"""
ActiveMQ Artemis 2.44.0, as far as STOMP 1.2 can see it.

Three things that depend on timing in the real broker are fixed here: when a socket dies, every message in flight on it
counts as one delivery attempt; the end of a connection takes effect at once; and messages that one consumer gives back
go to the consumer whose turn it is.

These raise NotImplementedError: other versions of STOMP, frames before CONNECT, priorities outside 0 to 9 (a real
broker takes such a message and loses it), and all management calls except those that jmsx itself makes.

Not modelled at all: settings of single addresses, redelivery delays, the scan for expired messages every 30 seconds
(here a message expires when it would be dispatched), prefixes of acceptors, auto-deleted queues and addresses,
auto-created dead letter resources, diverts, last-value and exclusive queues, paging, disk and memory limits, security,
restarts, the limit of 20,000 duplicate ids for each address, and the disconnection of a client that sends nothing.
"""
