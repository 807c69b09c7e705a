"""Text to syntax trees: a sqlglot dialect for ksqlDB's and standard streaming SQL, and our own small AST.

Entry point: `compiler.dialect.parser.parse_statements`. sqlglot stays inside this package. Knows no catalog and no types
of columns.
"""
