"""Standard SQL (`dialect: standard`): its own tokens, reserved words, grammar and syntax tree.

Entry point: `parser.parse_trees` gives the statements as written. The analyzer reads them, and takes their expressions as `lower_expressions` makes
them. It refuses what it cannot do by its name; the grammar never does. Knows no catalog and no types of columns.
"""
