"""Errors whose advice makes a right statement."""
