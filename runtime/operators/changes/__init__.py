"""Operators over changes (`flowql.compiler.plan.changes`): relations that are inserted into, updated and deleted from.

Entry points: one operator per module, made by `flowql.runtime.operators.factory`. What they share: `deltas` (the net changes of a run),
`buckets` (ordered maps in state), `order` (sort keys as text). docs/internals/views.md describes their state. They must not know SQL.
"""
