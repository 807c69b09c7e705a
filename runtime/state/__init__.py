"""State: all logical stores of an instance on one physical store, uncommitted writes in memory over it.

Entry point: `flowql.runtime.state.manager.StateManager`. rocksdict stays inside `flowql.runtime.state.rocks`. Knows neither tasks'
operators nor the log: the redo payload and changelog records it makes are bytes to it.
"""
