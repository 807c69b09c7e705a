"""Rewrites of logical plans that keep their meaning: one rule per file, driven by `flowql.compiler.optimize.rules`."""
