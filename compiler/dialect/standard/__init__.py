"""Standard SQL (`dialect: standard`): its own tokens, reserved words, grammar and syntax tree.

Entry points: `parser.parse_trees` gives the tree of each statement, `parser.parse_lowered` the statements of `flowql.compiler.dialect.ast` that
the analyzer reads today. What the tree can say and the analyzer cannot is refused by its name in `lower_*`, never by the grammar.
Knows no catalog and no types of columns.
"""
