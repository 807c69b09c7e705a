"""The live view of `flowql top`: `table` makes the picture of one status, `screen` repeats it and obeys keys."""
