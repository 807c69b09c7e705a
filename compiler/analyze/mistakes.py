"""How the analyzer reports: errors as data, with the codes it uses.

FQ2001 unknown source, 2002 unknown column, 2003 ambiguous column, 2004 name taken twice, 2005 types do not fit,
2006 unknown function, 2007 not a condition, 2008 reserved name. FQ2010 unknown property, 2011 bad property value,
2012 unknown format, 2013 format cannot hold the schema, 2014 missing property. FQ2020 aggregate in the wrong place,
2021 column outside GROUP BY, 2022 key missing in projection, 2023 key repeated, 2024 no value columns, 2025 stream or
table confused. FQ2030 join condition, 2031 join order or kind, 2103 join without time bound. FQ2040 INSERT.
FQ2026 a constant that fails. FQ2050-2053 catalogue. FQ2090 not built yet.
"""

from __future__ import annotations

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic, UnsupportedError
from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.diagnostics.source import NOWHERE, Span


def mistake(
    code: str,
    title: str,
    span: Span = NOWHERE,
    label: str = "",
    *,
    why: str = "",
    help: str = "",
    edit: Edit | None = None,
) -> CompileError:
    """A mistake of the user, to be raised."""
    return CompileError(Diagnostic(code, title, span, label, why, help, edit=edit))


def unsupported(title: str, span: Span = NOWHERE, label: str = "", *, help: str = "") -> UnsupportedError:
    """A construct that is understood and not built, to be raised."""
    return UnsupportedError(Diagnostic("FQ2090", title, span, label, help=help, unsupported=True))
