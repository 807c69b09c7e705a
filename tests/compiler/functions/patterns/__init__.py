"""Patterns of users: LIKE and regular expressions."""
