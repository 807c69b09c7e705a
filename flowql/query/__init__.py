"""Interactive queries over committed state: every table, stream and internal store as a relation of a private DuckDB.

Entry points: `flowql.query.session.evaluate` (one statement over one commit) and `flowql.query.committed` (what a commit
holds). Knows neither the command line nor a server; never touches the processing path.
"""
