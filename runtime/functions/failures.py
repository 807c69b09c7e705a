"""Texts of exceptions of users' code with the lines of that code, for messages of dead letters and failed queries."""

from __future__ import annotations

import os
import sysconfig
from functools import lru_cache
from pathlib import Path

from flowql.compiler.functions.registry import QueryFailure

TEXT_MAX = 2_000  # characters of the text of an exception
FRAMES_MAX = 5  # of the user's code in messages
_NOT_OF_USERS = tuple(
    str(folder) + os.sep
    for folder in (
        Path(__file__).parents[2],  # the package flowql
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    )
)


def described(error: BaseException) -> str:
    """An exception with the frames of the user's code: `ZeroDivisionError: division by zero (totals.py:12 process, totals.py:30 share)`."""
    return f"{type(error).__name__}: {text_of(error)}{frames_of(error)}"


def text_of(error: BaseException) -> str:
    """The text of an exception of the user, which may be of any size, or raise another one."""
    try:
        text = str(error)
    except Exception as why:
        return f"its text cannot be made ({type(why).__name__})"
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def frames_of(error: BaseException) -> str:
    """` (totals.py:12 process, totals.py:30 share)`, the innermost last; empty where no code of the user is involved."""
    found, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if _is_users(code.co_filename):
            found.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return f" ({', '.join(found[-FRAMES_MAX:])})" if found else ""


@lru_cache(maxsize=1_000)
def _is_users(file: str) -> bool:
    """Not FlowQL, the standard library, an installed package, or code that was made of a text."""
    return not file.startswith(("<", *_NOT_OF_USERS))


def reason_of(error: BaseException) -> str:
    """A failure as `status` shows it: code of the project that failed has FQ4033 in front and its places behind."""
    cause = error if error.__cause__ is None else error.__cause__
    places = frames_of(error) or frames_of(cause)
    text = str(error) if isinstance(error, QueryFailure) else f"{type(error).__name__}: {error}"
    if not places and not isinstance(error, QueryFailure):
        return text
    return f"{QueryFailure.code}: {text}{'' if places in text else places}"
