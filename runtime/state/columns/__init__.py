"""State in columns: keys packed into words, an index over them, and values by slot. See docs/internals/state.md."""
