"""Every function with adversarial arguments: how long a call keeps the lock of the interpreter, what it allocates, whether it ends the process.

Entry point: `python -m tests.bounds`. `calls.py` has the calls, `values.py` the arguments, `child.py` the process that makes them.
"""
