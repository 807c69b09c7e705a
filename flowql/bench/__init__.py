"""`flowql bench`: Nexmark from a fixed seed, an oracle for each result. The measured packages must not import this one."""
