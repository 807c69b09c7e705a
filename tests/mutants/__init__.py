"""Small changes to the code that tests have to notice: `python -m tests.mutants PACKAGE --mutants 30 --seed S`."""
