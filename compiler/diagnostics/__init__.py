"""What the compiler tells a person: spans, diagnostics, their rendering. Knows nothing of SQL."""
