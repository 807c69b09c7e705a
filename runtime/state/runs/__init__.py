"""Sorted runs: what large commits write of a store, as blocks of rows in order of their keys (`flowql.runtime.state.runs.reader`)."""
