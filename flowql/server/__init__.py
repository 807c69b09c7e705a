"""An instance as a process that can be talked to: HTTP on the loopback address, background start, client.

Entry points: `flowql.server.host.Host` (in the process of the instance), `flowql.server.running.connect` (elsewhere).
"""
