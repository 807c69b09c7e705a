"""`flowql test`: rows in, expected rows out, on the real engine with a log in memory and a virtual clock.

A test says what is `given` to the project's sources and what it expects of its results. It is read from YAML
(`yaml_form`) or SQL (`sql_form`) into a `Case`, run under several timings (`run`) and judged (`judge`).
"""
