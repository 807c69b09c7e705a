"""Targets over the same input, and what differs between the results of the first and of each other one.

Entry points: `flowql.verify.run.verify` (run all in fresh directories) and `flowql.verify.run.compare_held` (what they hold
already). Comparing (`leftover`, `match`) reads logs only and knows no engine; nothing here knows the command line.
"""
