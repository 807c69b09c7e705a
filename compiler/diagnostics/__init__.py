"""The compiler's messages: spans, diagnostics, their rendering. Knows nothing of SQL."""
