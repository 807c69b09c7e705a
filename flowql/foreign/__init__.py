"""`flowql import sql`: statements of other dialects, translated by `compiler.dialect.foreign`, each compiled before it counts as translated.

Entry point: `scripts.translated`. Knows no terminal.
"""
