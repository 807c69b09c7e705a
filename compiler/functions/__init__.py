"""The meaning of each function: signature, Python reference, DuckDB and Spark lowerings; aggregates; evaluation.

The runtime and Spark import this package. It knows expressions and types (`flowql.compiler.plan`), no parser and no engine.
Entry points: `registry.lookup`, `aggregates.lookup`, `evaluate.compile_row`, `duckdb_sql.lower`.
"""
