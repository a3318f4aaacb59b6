"""
Event logs of which the truth is known, and what an honest audit may say of each.

Nothing here imports jmsx: lines are written by what `adapters/jmsx_eventlog/SCHEMA.md` says, so that a mistake of the
writer or of the schema's code cannot hide itself. `python -m tests.pipeline.situations` judges a whole engine.
"""
