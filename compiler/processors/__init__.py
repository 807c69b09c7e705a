"""Processors of a project's own: the classes that its modules derive from, and topologies of them (KIP-28)."""
