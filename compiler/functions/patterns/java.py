r"""The syntax of java.util.regex, which ksqlDB and Flink have. `\w`, `\d`, `\s`, `\b` and `(?i)` are of ASCII letters, as in Java 19 and later.

Where a text says something that no engine of linear time has, or RE2 lacks, it is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from flowql.compiler.functions.patterns import code_points as cp
from flowql.compiler.functions.patterns.code_points import Ranges
from flowql.compiler.functions.patterns.reader import DIGITS, HEX, OCTAL, Reader
from flowql.compiler.functions.patterns.shape import (
    FINAL,
    empties_repeated,
    finals_are_last,
    is_nullable,
    is_of_one_way,
)
from flowql.compiler.functions.patterns.tree import (
    EMPTY,
    Chars,
    Group,
    Node,
    Pattern,
    Position,
    Repeat,
    sequence,
    walk,
)

DIGIT, WORD = cp.between("09"), cp.union(cp.between("az", "AZ", "09"), cp.chars("_"))
SPACE = cp.chars(" \t\n\x0b\f\r")
BLANKS = cp.union(cp.chars(" \t\xa0\u1680\u180e\u202f\u205f\u3000"), ((0x2000, 0x200A),))
LINES = cp.chars("\n\x0b\f\r\x85\u2028\u2029")
SHORT: dict[str, Ranges] = {
    letter: ranges
    for small, found in (("d", DIGIT), ("w", WORD), ("s", SPACE), ("h", BLANKS), ("v", LINES))
    for letter, ranges in ((small, found), (small.upper(), cp.complement(found)))
}
_PUNCT = cp.chars("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_POSIX: dict[str, Ranges] = {
    "Lower": cp.between("az"), "Upper": cp.between("AZ"), "ASCII": cp.ASCII, "Alpha": cp.between("az", "AZ"), "Digit": DIGIT,
    "Alnum": cp.between("az", "AZ", "09"), "Punct": _PUNCT, "Graph": ((0x21, 0x7E),), "Print": ((0x20, 0x7E),), "Blank": cp.chars(" \t"),
    "Cntrl": ((0, 0x1F), (0x7F, 0x7F)), "XDigit": cp.between("09", "af", "AF"), "Space": SPACE, "L1": ((0, 0xFF),), "all": cp.EVERY,
}  # fmt: skip
_CATEGORIES = frozenset(
    [
        "L",
        "Lu",
        "Ll",
        "Lt",
        "Lm",
        "Lo",
        "M",
        "Mn",
        "Me",
        "Mc",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pd",
        "Ps",
        "Pe",
        "Pc",
        "Po",
        "Pi",
        "Pf",
        "S",
        "Sm",
        "Sc",
        "Sk",
        "So",
        "Z",
        "Zs",
        "Zl",
        "Zp",
        "C",
        "Cc",
        "Cf",
        "Co",
        "Cn",
        "LC",
        "LD",
    ]
)
_MADE = {"LC": ("Lu", "Ll", "Lt"), "LD": ("L", "Nd")}
_CASES = frozenset(("Lu", "Ll", "Lt"))
_PROPERTIES = {"IsDigit": "Nd", "IsLetter": "L", "IsPunctuation": "P"}


@lru_cache(maxsize=200)
def named_class(name: str, *, ignore_case: bool) -> Ranges | None:
    r"""The characters of `\p{name}`; None for an unknown name. ignore_case: letters of one case are letters of any."""
    if name in _POSIX:
        return cp.both_cases_ascii(_POSIX[name]) if ignore_case and name in ("Lower", "Upper") else _POSIX[name]
    short = name.removeprefix("Is") if name.startswith("Is") else _after(name, ("gc=", "general_category="))
    if short not in _CATEGORIES:
        return cp.category(_PROPERTIES[name]) if name in _PROPERTIES else None
    if ignore_case and short in _CASES:
        short = "LC"
    return cp.union(*map(cp.category, _MADE.get(short, (short,))))


def _after(name: str, keys: tuple[str, ...]) -> str:
    return next((name[len(key) :] for key in keys if name.lower().startswith(key)), name)


_CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LINE_ENDS = cp.chars("\n\r\x85\u2028\u2029")
_NO_LINES = "write the pattern for one line, or  (?md)  where lines end with a line feed"


@dataclass(frozen=True, slots=True)
class _Flags:
    """Letters of `(?idmsu)` that are set."""

    letters: frozenset[str] = frozenset()

    def has(self, letter: str) -> bool:
        return letter in self.letters


@lru_cache(maxsize=1_000)
def parse_java(text: str) -> Pattern:
    """The tree of a pattern. Raises PatternError."""
    parser = _Parser(text)
    root = parser.alternatives()
    if parser.peek():
        parser.invalid("a closing bracket without an opening one")
    if any(isinstance(n, Position) and n.where in FINAL for n in walk(root)) and not finals_are_last(root):
        parser.refuse("$ or \\Z before the end of a pattern", "write  \\z  for the end of the string")
    if any(isinstance(n, Position) and n.where == "line_start" for n in walk(root)) and is_nullable(root):
        parser.refuse(
            "^ of each line, (?m), in a pattern that matches an empty string", "write what the line begins with"
        )
    if any(isinstance(n, Position) and n.where == "no_word_edge" for n in walk(root)) and is_nullable(root):
        # RE2 has such a match between the bytes of a character, too.
        parser.refuse("\\B in a pattern that matches an empty string", "write what is beside it")
    if empties_repeated(root):
        parser.refuse(
            "a repetition of what may be empty, with groups or alternatives in it", "write  +  for  *  within it"
        )
    return Pattern(text, root, parser.groups, tuple(parser.names.items()), frozenset(parser.stale))


class _Parser(Reader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.flags = _Flags()
        self.groups = 0
        self.names: dict[str, int] = {}
        self.stale: set[int] = set()

    def branch(self) -> Node:
        parts: list[Node] = []
        while (c := self.peek()) and c not in "|)":
            if c in "^$":
                self.at += 1
                place = self.start_of_line() if c == "^" else self.end_of_line()
                parts += self.repeated([place]) if self.peek() == "{" else [place]
            elif c in "*+?":
                self.invalid(f"nothing is before {c}")
            else:
                start, groups = self.at, self.groups
                made = self.atom()
                if made or self.peek() == "{":
                    if self.peek() in ("*", "+", "{") and self.peek() and made and is_of_one_way(made[-1]):
                        self.left_behind(start, groups)
                    parts += self.repeated(made)
        return sequence(parts)

    def left_behind(self, start: int, groups: int) -> None:
        """Notes groups that Java keeps after it gives up a round of a repetition. start, groups: the state before the repetition."""
        kept = self.text.startswith("(", start) and (self.text[start + 1] != "?" or self.text[start + 2] == "<")
        self.stale.update(range(groups + 1 + kept, self.groups + 1))

    def start_of_line(self) -> Node:
        if not self.flags.has("m"):
            return Position("text_start")
        if not self.flags.has("d"):
            self.refuse("^ at the beginning of each line, (?m)", _NO_LINES)
        return Position("line_start")

    def end_of_line(self) -> Node:
        if not self.flags.has("m"):
            return Position("final_unix" if self.flags.has("d") else "final")
        if not self.flags.has("d"):
            self.refuse("$ at the end of each line, (?m)", _NO_LINES)
        return Position("line_end")

    def repeated(self, atoms: list[Node]) -> list[Node]:
        """The last of the atoms with the quantifier behind it."""
        c = self.peek()
        if c not in ("*", "+", "?", "{"):
            return atoms
        self.at += 1
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(c) or self.counted()
        if self.peek() == "+":
            self.refuse("a possessive quantifier", f"write  {c if c != '{' else '{...}'}  without the second +")
        lazy = self.took("?")
        return [*atoms[:-1], Repeat(atoms[-1] if atoms else EMPTY, least, most, lazy)]

    def counted(self) -> tuple[int, int | None]:
        first = self.digits(DIGITS, 10)
        if not first:
            self.invalid("a number is missing behind {")
        second: str | None = first
        if self.took(","):
            second = self.digits(DIGITS, 10) or None
        if not self.took("}"):
            self.invalid("a closing } is missing")
        if second is not None and int(second) < int(first):
            self.invalid("the numbers of a repetition are in the wrong order")
        return self.times(int(first), None if second is None else int(second))

    def atom(self) -> list[Node]:
        """One part, or the characters of a quotation."""
        c = self.peek()
        if c == "(":
            return self.bracket()
        if c == "[":
            self.at += 1
            return [Chars(self.char_class())]
        if c == "{":
            return []
        if c == ".":
            self.at += 1
            return [Chars(self.point())]
        if c == "\\":
            return self.escape()
        self.at += 1
        return [self.literal(c)]

    def point(self) -> Ranges:
        if self.flags.has("s"):
            return cp.EVERY
        return cp.complement(cp.chars("\n") if self.flags.has("d") else _LINE_ENDS)

    def literal(self, c: str) -> Node:
        return Chars(self.cased(cp.chars(c)))

    def cased(self, ranges: Ranges) -> Ranges:
        if not self.flags.has("i"):
            return ranges
        return cp.both_cases(ranges) if self.flags.has("u") else cp.both_cases_ascii(ranges)

    def bracket(self) -> list[Node]:
        self.at += 1
        self.refuse_looks()
        if not self.took("?"):
            self.groups += 1
            return [self.closed(self.groups)]
        if self.peek() == ">":
            self.refuse("an atomic group (?>", "write  (?:")
        if self.took("<"):
            return [self.named_group()]
        if self.took(":"):
            return [self.closed(0)]
        return self.flagged()

    def named_group(self) -> Node:
        start = self.at
        while (c := self.peek()) and c != ">":
            if not (c.isascii() and c.isalnum()) or (self.at == start and c.isdigit()):
                self.invalid("the name of a group has letters and digits, a letter first")
            self.at += 1
        name = self.text[start : self.at]
        if not name or not self.took(">"):
            self.invalid("the name of a group is not closed")
        if name in self.names:
            self.invalid(f"two groups are called {name}")
        self.groups += 1
        self.names[name] = self.groups
        return self.closed(self.groups)

    def closed(self, number: int) -> Node:
        """The group up to its `)`. number: 0 for a group that is not kept."""
        before = self.flags
        body = self.alternatives()
        if not self.took(")"):
            self.invalid("a closing bracket is missing")
        self.flags = before
        return Group(body, number) if number else body

    def flagged(self) -> list[Node]:
        """`(?i)` up to the end of the brackets around it, `(?i:...)` for what is in it."""
        before, added, removed, on = self.flags, set[str](), set[str](), True
        while (c := self.peek()) and c not in ":)":
            if c == "-" and on:
                on = False
            elif c in "idmsu":
                (added if on else removed).add(c)
            elif c in "xU":
                self.refuse(f"the flag {c}", "write the pattern without it")
            else:
                self.invalid(f"(?{c} is unknown")
            self.at += 1
        self.flags = _Flags((before.letters | added) - removed)
        if self.took(")"):
            return []
        if not self.took(":"):
            self.invalid("a closing bracket is missing")
        body = self.alternatives()
        if not self.took(")"):
            self.invalid("a closing bracket is missing")
        self.flags = before
        return [body]

    def escape(self) -> list[Node]:
        self.at += 1
        c = self.peek()
        if c == "Q":
            return self.quotation()
        positions: dict[str, Literal["text_start", "text_end", "word_edge", "no_word_edge"]] = {
            "A": "text_start", "z": "text_end", "b": "word_edge", "B": "no_word_edge",
        }  # fmt: skip
        if c in positions and self.peek(1) != "{":
            self.at += 1
            return [Position(positions[c])]
        if c == "Z":
            self.at += 1
            return [Position("final_unix" if self.flags.has("d") else "final")]
        if c == "R":
            self.refuse("\\R", r"write  (?:\r\n|[\n\r])")
        if c in "123456789" and c:
            self.refuse(f"the back-reference \\{c}")
        refused = {"k": "a back-reference \\k", "G": "\\G", "X": "\\X", "b": "\\b{g}", "N": "\\N{...}"}
        if c in refused and c:
            self.refuse(refused[c])
        return [Chars(self.escaped_class())]

    def escaped_class(self) -> Ranges:
        r"""Behind a backslash: a class, or a character. Also in brackets."""
        c = self.peek()
        if c in SHORT and c:
            self.at += 1
            return SHORT[c]
        if c in ("p", "P"):
            return self.property()
        return self.cased(cp.chars(self.escaped()))

    def property(self) -> Ranges:
        negated = self.take() == "P"
        if self.took("{"):
            end = self.text.find("}", self.at)
            if end < 0:
                self.invalid("a closing } is missing")
            name, self.at = self.text[self.at : end], end + 1
        else:
            name = self.take()
        found = named_class(name, ignore_case=self.flags.has("i"))
        if found is None:
            self.refuse(f"the class \\p{{{name}}}", "write the characters in brackets")
        return cp.complement(found) if negated else found

    def escaped(self) -> str:
        """The character behind a backslash."""
        c = self.take()
        if c in _CONTROLS and c:
            return chr(_CONTROLS[c])
        if c == "0":
            return self.octal()
        if c == "x" and self.took("{"):
            digits = self.digits(HEX, 8)
            if not digits or not self.took("}") or int(digits, 16) > cp.LAST:
                self.invalid("a code point is not complete")
            return self.character(int(digits, 16))
        if c in ("x", "u"):
            return self.code_unit(2 if c == "x" else 4)
        if c == "c":
            control = self.take()
            if not control:
                self.invalid("a control character is not complete")
            return chr(ord(control) ^ 64)
        if not c or c in _LETTERS or c in DIGITS:
            self.invalid(f"the escape \\{c} is unknown" if c else "a backslash is at the end")
        return c

    def octal(self) -> str:
        digits = self.digits(OCTAL, 2)
        if not digits:
            self.invalid("an octal number is missing behind \\0")
        if digits[0] in "0123" and len(digits) == 2:
            digits += self.digits(OCTAL, 1)
        return chr(int(digits, 8))

    def code_unit(self, count: int) -> str:
        digits = self.digits(HEX, count)
        if len(digits) < count:
            self.invalid(f"{count} hexadecimal digits are missing")
        point = int(digits, 16)
        if 0xD800 <= point < 0xDC00 and self.took("\\u"):  # two units of UTF-16 are one character
            low = self.digits(HEX, 4)
            if len(low) == 4 and 0xDC00 <= int(low, 16) < 0xE000:
                return chr(0x10000 + ((point - 0xD800) << 10) + int(low, 16) - 0xDC00)
        return self.character(point)

    def character(self, point: int) -> str:
        if 0xD800 <= point < 0xE000:
            self.refuse("half of a character (a surrogate)")
        return chr(point)

    def quotation(self) -> list[Node]:
        self.at += 1
        end = self.text.find("\\E", self.at)
        quoted = self.text[self.at : end if end >= 0 else len(self.text)]
        self.at += len(quoted) + (2 if end >= 0 else 0)
        return [self.literal(c) for c in quoted]

    def char_class(self, *, nested: bool = True) -> Ranges:
        """Behind `[`, or behind && with nested False: up to `]`, which is read if nested."""
        self.opened()
        negated = nested and self.took("^")
        found: Ranges | None = None
        singles: Ranges | None = None
        while True:
            c = self.peek()
            if not c:
                self.invalid("a bracket [ is not closed")
            if c == "[":
                self.at += 1
                part = self.char_class()
                found = part if found is None else cp.union(found, part)
            elif c == "&" and self.peek(1) == "&":
                self.at += 2
                found, singles = self.narrowed(found, singles), None
            elif c == "]" and (found is not None or singles is not None):
                self.at += nested
                self.depth -= 1
                made = cp.union(found or cp.NONE, singles or cp.NONE)
                return cp.complement(made) if negated else made
            elif self.took("\\Q"):
                singles = self.quoted_in_class(singles)
            else:
                part = self.item()
                singles = part if singles is None else cp.union(singles, part)

    def quoted_in_class(self, singles: Ranges | None) -> Ranges | None:
        end = self.text.find("\\E", self.at)
        quoted = self.text[self.at : end if end >= 0 else len(self.text)]
        self.at += len(quoted) + (2 if end >= 0 else 0)
        return cp.union(singles or cp.NONE, self.cased(cp.chars(quoted))) if quoted else singles

    def narrowed(self, found: Ranges | None, singles: Ranges | None) -> Ranges:
        """Behind &&: what is on both sides."""
        right: Ranges | None = None
        while (c := self.peek()) not in ("]", "&"):
            if not c:
                self.invalid("a bracket [ is not closed")
            if c == "[":
                self.at += 1
                part = self.char_class()
            else:
                part = self.char_class(nested=False)
            right = part if right is None else cp.union(right, part)
        left = None if found is None and singles is None else cp.union(found or cp.NONE, singles or cp.NONE)
        if left is None or right is None:
            self.invalid("a side of && is empty")
        return cp.intersection(left, right)

    def item(self) -> Ranges:
        """A character, a class or a range in brackets."""
        if self.peek() == "\\":
            self.at += 1
            c = self.peek()
            if c in SHORT or c in ("p", "P"):
                return self.escaped_class()
            first = self.escaped()
        else:
            first = self.take()
        if self.peek() != "-" or self.peek(1) in ("]", "[", ""):
            return self.cased(cp.chars(first))
        self.at += 1
        if self.took("\\"):
            if self.peek() in SHORT or self.peek() in ("p", "P"):
                self.invalid("a range ends with a class")
            last = self.escaped()
        else:
            last = self.take()
        if ord(last) < ord(first):
            self.invalid("the ends of a range are in the wrong order")
        return self.cased(((ord(first), ord(last)),))
