"""Tasks: one sub-topology on one partition: input buffers, the program of operators, positions. Knows no other task."""
