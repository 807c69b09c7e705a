"""TPC-H and TPC-DS as views that stay right and as interactive queries: `python -m tests.tpc`."""
