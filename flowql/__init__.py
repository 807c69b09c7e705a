"""FlowQL: streaming SQL with priorities. The product: command line, projects, deployment, queries over state.

Entry points: the program `flowql` (`flowql.cli.main`); `flowql.config.load.load_project` and
`flowql.config.compile.compile_sources` for tools. Importing the package itself imports nothing.
"""
