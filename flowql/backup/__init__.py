"""Backups of a data directory: `take.take_backup` makes one, `lay.restore_backup` puts one back, `manifest` says what is in one.

For targets on the runtime with the embedded log. Knows nothing of terminals.
"""
