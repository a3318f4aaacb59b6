"""Programs that show what no test shows of the facts in BROKER.md; run by hand, with `python -m tests.probes`."""
