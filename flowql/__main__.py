"""`python -m flowql`: the program `flowql`, for an environment whose programs are not on the PATH."""

from flowql.cli import main

main()
