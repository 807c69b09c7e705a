"""Attacks on a running instance while a critical query is measured: `python -m tests.attacks`."""
