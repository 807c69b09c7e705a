"""The Python API, `import flowql`: a project's results, changes, topics and deployments in Python; the command line uses the same functions.

Entry points: `connection.connect`, `instance.Instance`. Their results are defined in `result` and `changes`.
"""
