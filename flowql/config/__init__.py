"""Projects: `flowql.yaml` and the files it names, read strictly, every mistake with its place.

Entry points: `flowql.config.load.load_project` and `flowql.config.compile.compile_sources`. Knows neither the command
line nor a running instance.
"""
