"""
Differential tests: the same scenarios on the ActiveMQ Java client and on jmsx.

`scenarios/FORMAT.md` is the contract. `scenario` reads the files, `java` and `client` run them,
`compare` judges, `recording` writes what the Java client did into a scenario. To run it:
`python -m tests.conformance --client java|jmsx --broker classic|fake PATH…`.
"""
