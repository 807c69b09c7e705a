"""Patterns of users: LIKE, and regular expressions that run on one engine of linear time.

`like.py` is a greedy search and needs no engine. It knows nothing of plans, SQL or functions.
"""
