"""
ActiveMQ Artemis 2.44.0, as far as STOMP can see it.

Decided here where the real broker leaves it to chance: what the death of a socket does (`Loss`); that the end of a
connection takes effect at once; that of two consumers the one whose turn it is gets what a third gives back.

NotImplementedError: frames before CONNECT, priorities outside 0 to 9 (a real broker takes such a message and loses it),
names in double quotes in selectors, and all management but the counts of a queue.

Not modelled at all: prefixes of acceptors, queues and addresses that delete themselves, dead letter resources that make
themselves, diverts, last-value and exclusive queues, paging, disk and memory limits, security, restarts, the limit of
20,000 duplicate ids for each address, collision avoidance in the redelivery delay, heart-beats and the time to live
(`FakeBrokerServer` has them), and that STOMP 1.0 and 1.1 take the last of repeated headers of a client.
"""
