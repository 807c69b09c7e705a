"""Outgoing records: partitioning, the record collector, suppression. Knows no operator and no task."""
