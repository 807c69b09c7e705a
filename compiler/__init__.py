"""From SQL and YAML text to a compiled plan: pure functions, no I/O, clock or thread.

Entry point: `compiler.driver.compile_project`. The runtime may import `compiler.plan` and
`compiler.functions` alone; importing those never loads the SQL parser.
"""
