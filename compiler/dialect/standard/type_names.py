"""Names of types in messages of the standard dialect: TEXT, not STRING."""

from __future__ import annotations

import re
from dataclasses import replace

from flowql.compiler.diagnostics.diagnostic import Diagnostic

_NAMES = {"STRING": "TEXT", "BYTES": "BYTEA", "DOUBLE": "DOUBLE PRECISION", "DECIMAL": "NUMERIC"}
_TYPE = re.compile(rf"'[^']*'|\"[^\"]*\"|\b({'|'.join(_NAMES)})\b(?! PRECISION)")


def in_standard_words(d: Diagnostic) -> Diagnostic:
    """The finding with the dialect's names of types; what stands in quotes is the user's."""
    title, label, why, help = map(_named, (d.title, d.label, d.why, d.help))
    return replace(d, title=title, label=label, why=why, help=help)


def _named(text: str) -> str:
    """The text with other names.

    >>> _named("cannot compare s (STRING) to 'STRING' with =, cast it to DECIMAL(10, 2)")
    "cannot compare s (TEXT) to 'STRING' with =, cast it to NUMERIC(10, 2)"
    """
    return _TYPE.sub(lambda m: _NAMES[m[1]] if m[1] else m[0], text)
