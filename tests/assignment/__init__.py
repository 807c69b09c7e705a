"""One value takes every way into a column, and becomes the same there."""
