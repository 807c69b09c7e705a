"""`flowql import sql`: statements of nine dialects as files in `cases`."""
