"""Two targets over the same input, and what differs between their results.

Entry points: `flowql.verify.run.verify` (run both in fresh directories) and `flowql.verify.run.compare_held` (what both hold
already). Comparing (`leftover`, `match`) reads logs only and knows no engine; nothing here knows the command line.
"""
