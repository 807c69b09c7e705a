"""The corpus of standard streaming SQL: statements and interactive queries in, rows out, on an engine in memory.

`python -m tests.slt DIR`; DIR holds one JSON file per case, the folder `data` beside it what cases load. The project contains neither.
"""
