"""Why a pattern of a user cannot be used, or a string not be compared with it."""

from __future__ import annotations

from flowql.compiler.functions.bounds import RowFailure


class PatternFailure(RowFailure):
    """A row that a function of patterns fails for."""

    code = "FQ4071"


class PatternError(PatternFailure):
    """A pattern that is not valid. constant_code: of the diagnostic where it is a constant. reason: without the pattern."""

    constant_code = "FQ2062"
    label = "is not valid"

    def __init__(self, pattern: str, reason: str, help: str = "") -> None:
        super().__init__(f"the pattern {shown(pattern)} {self._problem}: {reason}")
        self.reason, self.help = reason, help

    _problem = "is not valid"


class PatternNotSupported(PatternError):
    """A construct that an engine of linear time does not have, by its name."""

    constant_code = "FQ2061"
    label = "is not supported"
    _problem = "has a construct that is not supported"


class PatternTooLarge(PatternError):
    """The engine does not compile it within its limit of memory."""

    constant_code = "FQ2063"
    label = "is too large"
    _problem = "is too large"


class PatternAmbiguous(PatternError):
    """PostgreSQL would choose another one of several matches."""

    constant_code = "FQ2064"
    label = "is not supported"
    _problem = "has several matches at one place"


class StringTooLong(PatternFailure):
    """The string would take too long to be compared with the pattern."""

    code = "FQ4070"


def shown(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else pattern[:57] + "...")
