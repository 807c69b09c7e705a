"""Streams in Python: expressions, streams and tables that modules of a project build, as steps that the analyzer makes queries of."""
