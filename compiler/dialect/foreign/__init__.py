"""Statements of other systems' dialects as statements of FlowQL's standard dialect, for `flowql import sql`.

Entry point: `translate.translate`. sqlglot reads the other dialect and writes the translated tree. A construct is translated where a rule
says how, and refused by its name everywhere else, so nothing passes because it looks the same. Knows no catalog: the kinds of
columns are asked of its caller. Whether the result compiles is for the caller to check.
"""
