"""Python programs that use a project."""
