"""User-defined functions in processes of their own."""
