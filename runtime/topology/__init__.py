"""From a compiled plan to runnable tasks: partitions, programs, shared scans. Entry point: `flowql.runtime.topology.query`."""
