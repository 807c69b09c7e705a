"""Faults of the disk at the n-th I/O of a real process: a library that is loaded before libc, and what an instance makes of it."""
