"""Why a question was not answered."""

from __future__ import annotations

from flowql.errors import CommandError

REFUSED = "FQ5101"  # it would write, or reach outside
INVALID = "FQ5102"  # not SQL, or SQL about columns and types that are not there
UNKNOWN = "FQ5103"  # no such table, stream or store
BUSY = "FQ5104"
NOTHING = "FQ5105"  # nothing was ever deployed here

SEQUENCE = b"flowql.sequence"  # in the metadata of an answer: the number of the commit it is about
APART = b"flowql.apart"  # in the metadata of an answer: why its relations are not at one place of their input


class QueryError(CommandError):
    """A question that cannot be answered: refused, wrong, or about something that is not there."""
