"""`flowql doctor`: whether this machine and project have what they need. `examine` is the entry point."""
