"""
ActiveMQ Artemis 2.44.0, as far as STOMP 1.2 can see it.

Decided here where the real broker leaves it to chance: at the death of a socket all that was in flight counts as an
attempt; the end of a connection takes effect at once; of two consumers the one whose turn it is gets what a third gives
back.

NotImplementedError: other versions of STOMP, frames before CONNECT, priorities outside 0 to 9 (a real broker takes such
a message and loses it), and all management but what jmsx itself asks for.

Not modelled at all: settings of single addresses, redelivery delays, the look for expired messages every 30 seconds (a
message expires when it would be given out), prefixes of acceptors, queues and addresses that delete themselves, dead
letter resources that make themselves, diverts, last-value and exclusive queues, paging, disk and memory limits,
security, restarts, the limit of 20,000 duplicate ids for each address, and what becomes of a client that is silent.
"""
