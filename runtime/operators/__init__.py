"""Operators: immutable descriptions from the plan made runnable. Each processes one run of a task at a time."""
