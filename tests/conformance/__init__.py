"""Conformance: runs case files of SQL statements, input and output records on the production loops."""
