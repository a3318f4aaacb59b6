"""
What lies in a broker's dead letter queues, why, and the way back: for `jmsx dlq` and for programs of an operator.

`letter` is what one of them tells, and how they are chosen and counted; `access` is what adapters do with the queues of
one broker, and `opening` finds the adapter of its dialect (entry point group `jmsx.dead_letters`).
"""
