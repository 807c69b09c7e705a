"""Calls of asynchronous functions as operators of tasks (KIP-311)."""
