"""Regular expressions against Java and PostgreSQL, over generated pairs of pattern and string: `python -m tests.patterns --pairs 100000 --java`."""
