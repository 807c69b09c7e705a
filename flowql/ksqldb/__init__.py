"""From ksqlDB's scripts and migrations to a FlowQL project.

`scripts` reads files, `replay` finds what is there after all statements, `project` writes that as files, `report` says what
became of every statement. Nothing here runs a query.
"""
