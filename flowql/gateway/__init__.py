"""The process that serves the ports of `api` and `pg` for an instance. `child` is the process; `flowql.server.gateway_process` starts it.

It answers from the log, and relays what needs the instance. It must not import the engine of an instance (`flowql.runtime.app.instance`).
"""
