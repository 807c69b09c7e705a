"""The terminal: a prompt with history, completion and several lines. The one door to prompt_toolkit, with `flowql dev`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from flowql.cli.names import Names
from flowql.cli.shell.session import Session
from flowql.cli.shell.split import split

# --- Completion: what may follow the text before the cursor. Pure, so that it can be tested without a terminal ---

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "EMIT CHANGES", "AS", "DISTINCT", "WITH"),
    *("JOIN", "LEFT JOIN", "ON", "WITHIN", "WINDOW TUMBLING", "WINDOW HOPPING", "WINDOW SESSION", "GRACE PERIOD"),
    *("AND", "OR", "NOT", "IN", "IS NULL", "IS NOT NULL", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END"),
    *("ASC", "DESC", "NULL", "TRUE", "FALSE", "CAST", "UNION ALL", "PARTITION BY"),
)
STATEMENTS = (
    *("SELECT", "WITH", "DESCRIBE", "EXPLAIN", "SUMMARIZE", "SET 'auto.offset.reset' = 'earliest'"),
    *("SHOW STREAMS", "SHOW TABLES", "SHOW QUERIES", "SHOW TOPICS", "SHOW FUNCTIONS", "SHOW TYPES", "SHOW VARIABLES"),
    *(
        "SHOW PROPERTIES",
        "DESCRIBE STREAMS",
        "DESCRIBE TABLES",
        "PRINT",
        "PAUSE",
        "RESUME",
        "ASSERT TOPIC",
        "RUN SCRIPT",
    ),
    *("DEFINE", "UNDEFINE"),
)
COMMANDS = ("\\d", "\\ds", "\\dt", "\\df", "\\q", "\\timing", "\\x", "\\?")
_WORD = re.compile(r"[\\\w.`\"]*$")
_RELATION_AFTER = re.compile(r"\b(from|join|describe|summarize)\s+[`\"]?\w*$", re.IGNORECASE)
_QUERY_AFTER = re.compile(r"\bexplain\s+\w*$", re.IGNORECASE)
_MENTIONED = re.compile(r"\b(?:from|join)\s+[`\"]?(\w+)[`\"]?(?:\s+(?:as\s+)?(\w+))?", re.IGNORECASE)
_NO_ALIAS = frozenset(
    [
        "WHERE",
        "GROUP",
        "ON",
        "JOIN",
        "LEFT",
        "INNER",
        "FULL",
        "WINDOW",
        "EMIT",
        "ORDER",
        "LIMIT",
        "HAVING",
        "WITHIN",
        "PARTITION",
    ]
)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """text takes the place of the `length` characters before the cursor."""

    text: str
    length: int
    kind: str


def suggestions(before: str, after: str, names: Names, functions: tuple[str, ...]) -> Iterator[Suggestion]:
    """The possible completions. before, after: the statement on both sides of the cursor."""
    match = _WORD.search(before)
    word = match.group() if match is not None else ""
    if word.startswith("\\"):
        yield from _starting(word, COMMANDS, "command", len(word))
        return
    if re.match(r"\\d\w*\s+\w*$", before):
        yield from _starting(word, names.relations, "relation", len(word))
        return
    if "." in word:
        qualifier, _, part = word.rpartition(".")
        relation = _relation(qualifier, before + after, names)
        yield from _starting(part, names.relations.get(relation, ()), "column", len(part))
        return
    word = word.lstrip('`"')
    if _RELATION_AFTER.search(before):
        yield from _starting(word, names.relations, "relation", len(word))
        return
    if _QUERY_AFTER.search(before):
        yield from _starting(word, names.queries, "query", len(word))
    begun = before.lstrip()
    if not begun[: len(begun) - len(word)].strip() or begun.upper().startswith("SHOW "):
        yield from _starting(begun, STATEMENTS, "statement", len(begun))
        return
    mentioned = [_relation(m[1], before + after, names) for m in _MENTIONED.finditer(before + after)]
    columns = [c for r in mentioned for c in names.relations.get(r, ())]
    yield from _starting(word, dict.fromkeys(columns), "column", len(word))
    if word:  # everything that could be typed is no help
        yield from _starting(word, KEYWORDS, "keyword", len(word))
        yield from _starting(word, (f"{f}(" for f in functions), "function", len(word))
    else:
        yield from _starting(word, KEYWORDS[:8], "keyword", 0)


def _starting(word: str, candidates: Iterable[str], kind: str, length: int) -> Iterator[Suggestion]:
    folded = word.casefold()
    for candidate in candidates:
        if candidate.casefold().startswith(folded):
            text = candidate.lower() if kind in _FOLLOWS_CASE and word.islower() else candidate
            quoted = kind == "relation" and re.search(r"\W", text)
            yield Suggestion(f'"{text}"' if quoted else text, length, kind)


_FOLLOWS_CASE = ("keyword", "function", "statement")


def _relation(name: str, statement: str, names: Names) -> str:
    """The relation of that name, or the one that has it as an alias."""
    for match in _MENTIONED.finditer(statement):
        if match[2] is not None and match[2].upper() not in _NO_ALIAS and match[2].casefold() == name.casefold():
            name = match[1]
    return next((r for r in names.relations if r.casefold() == name.casefold()), name)


class Prompt:
    """Asks a person for statements."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._name = session.project.name
        self._prompt: PromptSession[str] = PromptSession(
            history=FileHistory(str(history_file())),
            completer=_Completer(session),
            complete_while_typing=Condition(lambda: False),  # on Tab: a list that jumps up at every key is in the way
            multiline=True,
            prompt_continuation=lambda width, line, soft: "-> ".rjust(width),
            key_bindings=_keys(),
            enable_history_search=False,
        )

    def read(self) -> str:
        """The typed text, at least one statement or nothing. Raises EOFError (Ctrl-D) and KeyboardInterrupt (Ctrl-C)."""
        return self._prompt.prompt(f"{self._name}> ")


def history_file() -> Path:
    """In the user's folder for such things; readable by the user alone, as statements may name people."""
    state = os.environ.get("XDG_STATE_HOME")
    file = (Path(state) if state else Path.home() / ".local" / "state") / "flowql" / "history"
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    return file


def is_whole(text: str) -> bool:
    """Enter ends it: nothing, a command, or statements that all end with a semicolon."""
    whole, rest = split(text)
    return not rest or (not whole and rest.strip().lower() in ("quit", "exit", "help", "?"))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # takes what is chosen, and goes on
        elif is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


class _Completer(Completer):
    def __init__(self, session: Session) -> None:
        self._session = session
        self._functions: tuple[str, ...] | None = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        del complete_event
        return self._found(document)

    def _found(self, document: Document) -> Iterator[Completion]:
        if self._functions is None:
            from flowql.cli.shell.show import functions  # loads the catalogue, which the first prompt need not wait for

            self._functions = tuple(name for name, *_ in functions().rows)
        before = document.text_before_cursor
        _, begun = split(before)
        for s in suggestions(begun or before.strip(), document.text_after_cursor, self._session.names, self._functions):
            yield Completion(s.text, start_position=-s.length, display_meta=s.kind)
