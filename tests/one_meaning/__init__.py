"""One statement on every way through FlowQL: the rows are the same, and PostgreSQL's. `python -m tests.one_meaning`."""
