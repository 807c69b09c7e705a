"""An instance: wiring of all modules, its threads, the polling step, live deployment. Nothing in the engine imports this.

Entry points: `flowql.runtime.app.instance.Instance` (the engine as steps), `flowql.runtime.app.threads.run_threads` (production),
`flowql.runtime.app.driver.Driver` (deterministic).
"""
