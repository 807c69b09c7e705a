"""From a statement of another dialect to the text of one of FlowQL's standard dialect."""

from __future__ import annotations

from flowql.compiler.dialect.foreign.declarations import DECLARATIONS
from flowql.compiler.dialect.foreign.dialects import written
from flowql.compiler.dialect.foreign.expressions import EXPRESSIONS
from flowql.compiler.dialect.foreign.functions import FUNCTIONS
from flowql.compiler.dialect.foreign.kinds import Columns
from flowql.compiler.dialect.foreign.queries import QUERIES
from flowql.compiler.dialect.foreign.reading import Piece, parsed
from flowql.compiler.dialect.foreign.same import SAME
from flowql.compiler.dialect.foreign.times import TIMES
from flowql.compiler.dialect.foreign.translation import Rule, Translation
from flowql.compiler.dialect.foreign.untranslated import Problem, Untranslated

RULES: dict[type, Rule] = {**EXPRESSIONS, **TIMES, **FUNCTIONS, **QUERIES, **DECLARATIONS}


def translate(piece: Piece, text: str, dialect: str, columns: Columns) -> str:
    """The statement in FlowQL, without a semicolon. Raises Untranslated with all that has no translation.

    text: of the file that the piece is from. columns: name of a relation -> its columns with their kinds (`kinds.kind_of_type`), None if it is unknown.
    """
    tree = parsed(piece, text, dialect)
    translation = Translation(dialect, columns, RULES, SAME)
    try:
        made = translation.noted(tree)
        if translation.problems:
            raise Untranslated(*translation.problems)
        return written(made) + translation.behind + _closing(piece)
    except RecursionError:
        problem = Problem("the statement", "it is nested too deeply", "split it", piece.start, piece.start + 1)
        raise Untranslated(problem) from None


def _closing(piece: Piece) -> str:
    return "\nEMIT ON WINDOW CLOSE" if piece.closes else "\nAPPEND ONLY" if piece.appends else ""
