"""Runs topologies of processors (KIP-28) as operators of tasks."""
