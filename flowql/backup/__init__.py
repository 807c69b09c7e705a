"""Backups of a data directory as commands: `take.take_backup` makes one, `lay.restore_backup` puts one back, `verify` reads one.

For targets on the runtime with the embedded log. The format is that of `flowql.runtime.backup`. Knows nothing of terminals.
"""
