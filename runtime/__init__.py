"""The engine: runs a compiled plan. Knows `flowql.compiler.plan` and `flowql.compiler.functions`, never SQL text or the parser."""

if __name__ != "flowql.runtime":
    raise ImportError("import flowql.runtime: as runtime, its registries and classes would exist twice in one process")
