"""From SQL and YAML text to a compiled plan: pure functions, no I/O, clock or thread.

Entry point: `flowql.compiler.driver.compile_project`. The runtime may import `flowql.compiler.plan` and
`flowql.compiler.functions` alone; importing those never loads the SQL parser.
"""

if __name__ != "flowql.compiler":
    raise ImportError(
        "import flowql.compiler: as compiler, its registries and classes would exist twice in one process"
    )
