"""Streams in Python as statements: each output of a `StreamsBuilder` is one CREATE ... AS or INSERT INTO."""
