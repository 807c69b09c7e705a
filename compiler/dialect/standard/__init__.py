"""Standard SQL (`dialect: standard`): its own tokens, reserved words, grammar and syntax tree.

Entry point: `parser.parse_trees` gives the statements as written. The analyzer reads them, and
`analyze.standard_forms` says what the forms of this dialect mean. The analyzer refuses what it cannot do by its name. Knows no catalog and no types of columns.
"""
