"""Which member of an application runs which partitions: a record that one of them writes, and heartbeats (docs/internals/placement.md)."""
