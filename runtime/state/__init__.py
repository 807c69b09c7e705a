"""State: all logical stores of an instance on one physical store, uncommitted writes in memory over it.

Entry point: `runtime.state.manager.StateManager`. rocksdict stays inside `runtime.state.rocks`. Knows neither tasks'
operators nor the log: the redo payload and changelog records it makes are bytes to it.
"""
