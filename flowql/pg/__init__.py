"""PostgreSQL's protocol for an instance: sessions, encoding, catalogue. The gateway (`flowql.gateway`) runs it.

Nothing here runs in the process of the instance.
"""
