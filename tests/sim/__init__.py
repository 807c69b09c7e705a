"""Whole instances on a simulated log, driven from one seed: `python -m tests.sim --seeds 3000`.

`broker` is a cluster (partitions, transactions, groups), `log` its clients, `world` the instances, their steps and what happens to
them, `project` the queries and the oracle, `plants` bugs that have to be found. Everything runs in one thread on a virtual clock.
"""
