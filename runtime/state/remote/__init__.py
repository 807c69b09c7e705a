"""Checkpoints of tasks in an object store, and state that begins with one."""
