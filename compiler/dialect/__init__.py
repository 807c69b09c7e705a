"""Text to syntax trees of two dialects: ksqlDB's here, with sqlglot's tokens, standard SQL in `standard`; both give the AST of `ast`.

Entry point: `flowql.compiler.dialect.parser.parse_statements`. sqlglot stays inside this package. Knows no catalog and no types
of columns.
"""
