"""PostgreSQL's protocol."""
