"""Standard SQL (`dialect: standard`): its own tokens, reserved words, grammar and syntax tree.

Entry points: `parser.parse_trees` gives the statements as written, `parser.parse_lowered` those that the analyzer reads: the trees of CREATE
TABLE, INSERT, UPDATE and DELETE become others (`lower_*`). What the analyzer cannot do is refused by its name, never by the grammar.
Knows no catalog and no types of columns.
"""
