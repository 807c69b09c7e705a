"""Operators over changes against recomputation: random tables, changes and partitions (`python -m tests.incremental`)."""
