"""An instance: wiring of all modules, its threads, the polling step, live deployment. Nothing in the engine imports this.

Entry points: `runtime.app.instance.Instance` (the engine as steps), `runtime.app.threads.run_threads` (production),
`runtime.app.driver.Driver` (deterministic).
"""
