"""From ksqlDB's scripts and migrations to a FlowQL project.

`scripts` reads files, `replay` computes the objects that exist after all statements, `project` writes these as files, `report` says what
became of every statement. No query is run.
"""
