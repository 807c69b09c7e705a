"""Dead letters: what could not be read, shown by record, and repaired."""
