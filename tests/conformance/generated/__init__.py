"""
Random JMS programs, run by the ActiveMQ Java client and by jmsx, whose traces must be equal.

`generator` writes programs in the scenario format, `world` keeps them determinate, `trial` runs
them, `allowances` says which differences STOMP excuses, `shrink` makes a program that differs small.
To run it: `python -m tests.conformance.generated --seed S --programs N`.
"""
