"""The engine: runs a compiled plan. Knows `compiler.plan` and `compiler.functions`, never SQL text or the parser."""
