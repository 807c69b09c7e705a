"""From syntax trees to bound, typed logical plans.

Entry point: `flowql.compiler.analyze.statements.analyze`. Must not know how statements are parsed nor how plans are run.
"""
