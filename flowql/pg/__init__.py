"""PostgreSQL's protocol for an instance: sessions, encoding, catalogue. `child` is the process; `flowql.server.pg_process` starts it.

Nothing here runs in the process of the instance.
"""
