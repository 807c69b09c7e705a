"""Benchmarks: input from a fixed seed, an oracle for each result. Must not be imported by what it measures."""
