"""Ticks: numbered cuts through all sources of a project, at which its views agree (`docs/internals/ticks.md`)."""
