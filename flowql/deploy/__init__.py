"""From a compiled project to running queries: what would change, and the engine that runs it.

Entry points: `flowql.deploy.stages.decide` (pure: what to do) and `flowql.deploy.engine.open_instance`. Knows neither HTTP nor
the command line.
"""
