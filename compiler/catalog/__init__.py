"""The catalogue: streams, tables and custom types by name, as an immutable value. Knows nothing of SQL text or queries."""
