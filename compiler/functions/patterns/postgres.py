r"""The syntax of PostgreSQL's advanced regular expressions (`~`, REGEXP_REPLACE), and that of SIMILAR TO.

Letters are those of Unicode, as with a locale of UTF-8; `\d` and `[[:digit:]]` are 0 to 9.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from flowql.compiler.functions.patterns import code_points as cp
from flowql.compiler.functions.patterns.code_points import Ranges
from flowql.compiler.functions.patterns.reader import DIGITS, HEX, OCTAL, Reader
from flowql.compiler.functions.patterns.shape import empties_repeated, first, is_nullable
from flowql.compiler.functions.patterns.tree import (
    EMPTY,
    Alternation,
    Chars,
    Group,
    Node,
    Pattern,
    PatternAmbiguous,
    PatternError,
    Position,
    Repeat,
    Sequence,
    Where,
    children,
    sequence,
    walk,
)

# --- whether the first match in the order of a pattern is the one that PostgreSQL takes ---
#
# PostgreSQL takes the longest match at a place, or the shortest one where the first quantifier is lazy. It then takes the longest or shortest of each
# part, from left to right. RE2 takes what the pattern tries first. Both agree if a part that may end cannot continue with a character that may begin
# what follows it: then there is one way to continue. Patterns for which they may disagree are refused.

Order = Literal["longest", "shortest", "one", "unknown"]


@dataclass(frozen=True, slots=True)
class _Ends:
    """The ends of a part's matches at one place, in the order in which they are tried. goes_on: characters with which a longer one goes on behind a shorter one.

    fixed: their length in characters, if that is known.
    """

    order: Order
    goes_on: Ranges = cp.NONE
    fixed: int | None = None


_UNKNOWN = _Ends("unknown", cp.EVERY)


def reordered(node: Node) -> Node:
    """Alternatives of fixed lengths with the longest ones first, which PostgreSQL prefers."""
    if isinstance(node, Alternation):
        options = [reordered(o) for o in node.options]
        sizes = [_ends(o).fixed for o in options]
        if all(s is not None for s in sizes):
            order = sorted(range(len(options)), key=lambda i: -(sizes[i] or 0))
            options = [options[i] for i in order]
        return Alternation(tuple(options))
    if isinstance(node, Sequence):
        return Sequence(tuple(map(reordered, node.parts)))
    if isinstance(node, Repeat):
        return Repeat(reordered(node.body), node.least, node.most, node.lazy)
    return Group(reordered(node.body), node.number) if isinstance(node, Group) else node


def disagreement(root: Node) -> str:
    """Why PostgreSQL may take another match, or nothing. root: as `reordered` gives it."""
    if any(isinstance(n, Repeat) and n.most != 1 and _changes_groups(n.body) for n in walk(root)):
        return "a group is left out in some repetitions of what is around it"
    lazy = _preference(root)
    ends = _ends(root)
    if ends.order == "unknown":
        return "parts that follow each other may both match the same characters"
    if ends.order != "one" and ends.order != ("shortest" if lazy else "longest"):
        return "greedy and lazy quantifiers are mixed"
    return ""


def _changes_groups(body: Node) -> bool:
    """Whether a group within a repetition is not part of every one."""
    inner = [n for n in walk(body) if isinstance(n, Alternation) or (isinstance(n, Repeat) and n.least == 0)]
    return any(isinstance(g, Group) for n in inner for c in children(n) for g in walk(c))


def _preference(node: Node) -> bool:
    """Whether it prefers the shortest match: its first quantifier is lazy. Alternatives prefer the longest one."""
    return _quantified(node) is True


def _quantified(node: Node) -> bool | None:
    """Whether its first quantifier is lazy; None without one."""
    if isinstance(node, Alternation):
        return False
    if isinstance(node, Repeat):
        if node.least == node.most:
            return _quantified(node.body)
        return node.lazy
    for child in children(node):
        found = _quantified(child)
        if found is not None:
            return found
    return None


def _ends(node: Node) -> _Ends:
    if isinstance(node, Chars):
        return _Ends("one", fixed=1)
    if isinstance(node, Position):
        return _Ends("one", fixed=0)
    if isinstance(node, Group):
        return _ends(node.body)
    if isinstance(node, Repeat):
        return _repeated(node)
    if isinstance(node, Alternation):
        return _one_of(node)
    return _in_a_row(node.parts)


def _in_a_row(parts: tuple[Node, ...]) -> _Ends:
    made = _Ends("one", fixed=0)
    rest: Node = Sequence(())
    for part in reversed(parts):
        made = _pair(_ends(part), made, rest)
        rest = Sequence((part, *(rest.parts if isinstance(rest, Sequence) else (rest,))))
    return made


def _pair(a: _Ends, b: _Ends, rest: Node) -> _Ends:
    """a, then b, which is `rest`."""
    if "unknown" in (a.order, b.order):
        return _UNKNOWN
    fixed = a.fixed + b.fixed if a.fixed is not None and b.fixed is not None else None
    goes_on = cp.union(b.goes_on, cp.union(a.goes_on, first(rest)) if is_nullable(rest) else cp.NONE)
    if a.order == "one":
        return _Ends(b.order, b.goes_on if not a.goes_on else goes_on, fixed)
    if _stops_at_end(rest, greedy=a.order == "longest"):
        return _Ends("one", cp.NONE, fixed)
    if b.fixed is not None:
        return _Ends(a.order, cp.union(a.goes_on, first(rest), cp.EVERY if b.fixed else cp.NONE), fixed)
    if cp.intersection(a.goes_on, first(rest)):
        return _UNKNOWN
    if is_nullable(rest):
        return _Ends(a.order, goes_on, fixed) if b.order in ("one", a.order) else _UNKNOWN
    return _Ends(b.order, goes_on, fixed)  # one end of `a` alone leads on


def _stops_at_end(rest: Node, *, greedy: bool) -> bool:
    """Whether it ends at the end of the text, wherever it begins. greedy: what is before it prefers the longest match, which is then that of all."""
    if isinstance(rest, Sequence) and rest.parts:
        return _stops_at_end(rest.parts[-1], greedy=greedy)
    if isinstance(rest, Repeat):
        to_end = not rest.lazy and rest.most is None and isinstance(rest.body, Chars) and rest.body.ranges == cp.EVERY
        return greedy and to_end
    return _stops_at_end(rest.body, greedy=greedy) if isinstance(rest, Group) else rest == Position("text_end")


def _repeated(node: Repeat) -> _Ends:
    body = _ends(node.body)
    if body.order == "unknown":
        return _UNKNOWN
    if node.least == node.most and body.fixed is not None:
        return _Ends("one", cp.NONE, body.fixed * node.least)
    if is_nullable(node.body):
        return _UNKNOWN
    if body.order != "one" and cp.intersection(body.goes_on, first(node.body)):
        return _UNKNOWN
    order: Order = "shortest" if node.lazy else "longest"
    if body.order not in ("one", order) and node.most != 1:
        return _UNKNOWN
    if body.order not in ("one", order):
        return _UNKNOWN
    return _Ends(order, cp.union(body.goes_on, first(node.body)) if node.most != 1 or node.least == 0 else body.goes_on)


def _one_of(node: Alternation) -> _Ends:
    parts = [_ends(o) for o in node.options]
    sizes = [p.fixed for p in parts]
    known = [s for s in sizes if s is not None]
    if len(known) == len(sizes):
        if len(set(known)) == 1:
            return _Ends("one", fixed=known[0])
        return _Ends("longest", _longer(node.options))  # the longest one is tried first
    firsts = [first(o) for o in node.options]
    for i, a in enumerate(firsts):
        if any(cp.intersection(a, b) for b in firsts[:i]) or (is_nullable(node.options[i]) and i < len(firsts) - 1):
            return _UNKNOWN
    if any(p.order not in ("one", "longest") for p in parts):
        return _UNKNOWN
    return _Ends("longest", cp.union(*(p.goes_on for p in parts), *(firsts if is_nullable(node) else ())))


def _longer(options: tuple[Node, ...]) -> Ranges:
    """The characters with which longer alternatives of fixed lengths go on behind the end of shorter ones."""
    columns = [_columns(o) for o in options]
    if any(c is None for c in columns):
        return cp.EVERY
    sizes = {len(c) for c in columns if c is not None}
    return cp.union(*(c[size] for c in columns if c is not None for size in sizes if size < len(c)))


def _columns(node: Node) -> list[Ranges] | None:
    """The characters at each place of a part of a fixed length; None where lengths differ within it."""
    if isinstance(node, Chars):
        return [node.ranges]
    if isinstance(node, Repeat):
        body = _columns(node.body) if node.least == node.most else None
        return None if body is None else body * node.least
    parts = [_columns(c) for c in children(node)]
    if any(p is None for p in parts):
        return None
    known = [p for p in parts if p is not None]
    if isinstance(node, Alternation):
        return [cp.union(*at) for at in zip(*known, strict=True)] if len({len(p) for p in known}) == 1 else None
    return [ranges for p in known for ranges in p]


_CONTROLS = {"a": 7, "b": 8, "B": 92, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "0": 0}
_PLACES: dict[str, Where] = {"A": "text_start", "Z": "text_end"}
FLAGS = "cimnpstw"
_TIMES_MAX = 255


def _is_alpha(c: str) -> bool:
    """As the C library has it: numbers of other scripts and signs of vowels are letters, too."""
    category = unicodedata.category(c)
    if category in ("Mn", "Mc"):
        combining = unicodedata.combining(c)
        return combining == 240 or (combining == 0 and not 0xFE00 <= ord(c) < 0xFE10) or 10 <= combining <= 36
    return c.isalpha() or (not c.isascii() and category in ("Nd", "Nl"))


def _is_space(c: str) -> bool:
    return c in " \t\n\x0b\f\r" or (not c.isascii() and c.isspace() and c not in "\xa0\u2007\u202f\x85")


def _is_upper(c: str) -> bool:
    return c.isupper() or unicodedata.category(c) == "Lt"


def _is_lower(c: str) -> bool:
    return c.islower() or (unicodedata.category(c) == "Lt" and len(c.upper()) == 1)


def _is_printed(c: str) -> bool:
    return unicodedata.category(c) not in ("Cc", "Cn", "Cs", "Zl", "Zp")


@lru_cache(maxsize=20)
def posix_class(name: str) -> Ranges | None:
    """The characters of `[:name:]`."""
    if name == "alpha":
        return cp.where(_is_alpha)
    if name == "digit":
        return cp.between("09")
    if name == "alnum":
        return cp.union(cp.where(_is_alpha), cp.between("09"))
    if name == "word":
        return cp.union(cp.where(_is_alpha), cp.between("09"), cp.chars("_"))
    if name in ("upper", "lower"):
        return cp.where(_is_upper if name == "upper" else _is_lower)
    if name == "space":
        return cp.where(_is_space)
    if name == "blank":
        return cp.chars(" \t")
    if name == "xdigit":
        return cp.between("09", "af", "AF")
    if name == "cntrl":
        return cp.category("Cc")
    printed = cp.where(_is_printed)
    graph = cp.intersection(printed, cp.complement(cp.where(_is_space)))
    letters = cp.union(cp.where(_is_alpha), cp.between("09"))
    return {"print": printed, "graph": graph, "punct": cp.intersection(graph, cp.complement(letters))}.get(name)


_SHORT = {"d": "digit", "s": "space", "w": "word"}


def short_class(letter: str) -> Ranges:
    found = posix_class(_SHORT[letter.lower()])
    assert found is not None
    return cp.complement(found) if letter.isupper() else found


@lru_cache(maxsize=1_000)
def parse_postgres(text: str, flags: str = "") -> Pattern:
    """The tree of a pattern. flags: i, n, m, p, s, w. Raises PatternError."""
    parser = _Parser(text, flags)
    root = parser.whole()
    if empties_repeated(root):
        parser.refuse(
            "a repetition of what may be empty, with groups or alternatives in it", "write  +  for  *  within it"
        )
    return Pattern(text, root, parser.groups)


@lru_cache(maxsize=1_000)
def parse_postgres_match(text: str, flags: str = "") -> Pattern:
    """As `parse_postgres`, of a pattern whose match is taken, and not only asked for. Raises PatternAmbiguous where RE2's may be another one."""
    found = parse_postgres(text, flags)
    root = reordered(found.root)
    why = disagreement(root)
    if why:
        raise PatternAmbiguous(text, why, "write the pattern so that each character has one part that can match it")
    return Pattern(text, root, found.groups)


class _Parser(Reader):
    def __init__(self, text: str, flags: str) -> None:
        super().__init__(text)
        self.groups = 0
        self.ignores_case = False
        self.point_is_any = self.ends_are_texts = True
        for flag in flags:
            self.set(flag)

    def set(self, flag: str) -> None:
        if flag in "ic":
            self.ignores_case = flag == "i"
        elif flag in "snmpw":
            self.point_is_any, self.ends_are_texts = flag in "sw", flag in "sp"
        elif flag != "t":
            self.refuse(f"the option {flag}", "write the pattern without it")

    def whole(self) -> Node:
        if self.text.startswith("***"):
            self.refuse("a director ***", "write the pattern without it")
        if self.took("(?") and self.peek() and self.peek().isalpha():
            while (c := self.take()) != ")":
                if not c or not c.isalpha():
                    self.invalid("an embedded option is not valid")
                self.set(c)
        else:
            self.at = 0
        root = self.alternatives()
        if self.peek():
            self.invalid("a closing bracket without an opening one")
        return root

    def branch(self) -> Node:
        parts: list[Node] = []
        while (c := self.peek()) and (c != "|" and (c != ")" or self.depth == 1)):
            if c == ")":
                self.invalid("a closing bracket without an opening one")
            place = self.place()
            if place is not None:
                parts.append(Position(place))
                if self.quantifier_is_next():
                    self.invalid("a quantifier has nothing to repeat")
            elif self.quantifier_is_next():
                self.invalid("a quantifier has nothing to repeat")
            else:
                parts.append(self.repeated(self.atom()))
        return sequence(parts) if parts else EMPTY

    def place(self) -> Where | None:
        if self.took("^"):
            return "text_start" if self.ends_are_texts else "line_start"
        if self.took("$"):
            return "text_end" if self.ends_are_texts else "line_end"
        if self.peek() == "\\" and self.peek(1) in ("A", "Z"):
            self.at += 2
            return _PLACES[self.text[self.at - 1]]
        if self.peek() == "\\" and self.peek(1) in ("m", "M", "y", "Y"):
            self.refuse(
                f"the edge of a word \\{self.peek(1)}", r"write  (^|\W)  before the word, and  ($|\W)  behind it"
            )
        return None

    def quantifier_is_next(self) -> bool:
        c = self.peek()
        return c in ("*", "+", "?") or (c == "{" and self.peek(1) in DIGITS and bool(self.peek(1)))

    def repeated(self, body: Node) -> Node:
        if not self.quantifier_is_next():
            return body
        c = self.take()
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(c) or self.counted()
        lazy = self.took("?")
        if self.quantifier_is_next():
            self.invalid("a quantifier follows another one")
        # {m} has no preference of its own, even with a question mark behind it.
        return Repeat(body, least, most, lazy and least != most)

    def counted(self) -> tuple[int, int | None]:
        least = int(self.digits(DIGITS, 4))
        most: int | None = least
        if self.took(","):
            digits = self.digits(DIGITS, 4)
            most = int(digits) if digits else None
        if not self.took("}") or max(least, most or 0) > _TIMES_MAX or (most is not None and most < least):
            self.invalid(f"a repetition has numbers up to {_TIMES_MAX}, the smaller one first")
        return least, most

    def atom(self) -> Node:
        c = self.take()
        if c == "(":
            return self.bracket()
        if c == "[":
            return Chars(self.class_())
        if c == ".":
            return Chars(cp.EVERY if self.point_is_any else cp.complement(cp.chars("\n")))
        if c == "\\":
            return self.escape()
        return self.literal(c)

    def literal(self, c: str) -> Node:
        return Chars(self.cased(cp.chars(c)))

    def cased(self, ranges: Ranges) -> Ranges:
        return cp.both_cases(ranges) if self.ignores_case else ranges

    def bracket(self) -> Node:
        self.refuse_looks()
        kept = not self.took("?:")
        if kept and self.peek() == "?":
            self.invalid(f"(?{self.peek(1)} is unknown")
        if kept:
            self.groups += 1
        number = self.groups
        body = self.alternatives()
        if not self.took(")"):
            self.invalid("a closing bracket is missing")
        return Group(body, number) if kept else body

    def escape(self) -> Node:
        c = self.peek()
        if c.lower() in _SHORT and c:
            self.at += 1
            return Chars(short_class(c))
        if c in "123456789" and c:
            self.refuse(f"the back-reference \\{c}")
        return self.literal(self.escaped())

    def escaped(self) -> str:
        """The character behind a backslash."""
        c = self.take()
        if not c:
            self.invalid("a backslash is at the end")
        if c == "0" or c in OCTAL:
            self.at -= 1
            return chr(int(self.digits(OCTAL, 3), 8))
        if c in _CONTROLS:
            return chr(_CONTROLS[c])
        if c == "c":
            control = self.take()
            if not control:
                self.invalid("a control character is not complete")
            return chr(ord(control) & 0x1F)
        if c in "xuU":
            digits = self.digits(HEX, {"x": 255, "u": 4, "U": 8}[c])
            if not digits or (c != "x" and len(digits) < {"u": 4, "U": 8}[c]):
                self.invalid("hexadecimal digits are missing")
            return self.character(int(digits, 16))
        if c.isalnum():
            self.invalid(f"the escape \\{c} is unknown")
        return c

    def character(self, point: int) -> str:
        if 0xD800 <= point < 0xE000 or point > cp.LAST:
            self.invalid("a number is not that of a character")
        return chr(point)

    def class_(self) -> Ranges:
        """Behind `[`."""
        negated = self.took("^")
        parts: list[Ranges] = []
        begin = self.at
        while self.peek() != "]" or self.at == begin:
            if not self.peek():
                self.invalid("a bracket [ is not closed")
            parts.append(self.item())
        self.at += 1
        made = cp.union(*parts)
        if not negated:
            return made
        return cp.complement(made if self.point_is_any else cp.union(made, cp.chars("\n")))

    def item(self) -> Ranges:
        if self.peek() == "[" and self.peek(1) == ":":
            return self.no_range(self.cased(self.named()))
        if self.peek() == "\\" and self.peek(1).lower() in _SHORT and self.peek(1):
            self.at += 2
            return self.no_range(short_class(self.text[self.at - 1]))
        first = self.end_of_range()
        if self.peek() != "-" or self.peek(1) == "]":
            return self.cased(cp.chars(first))
        self.at += 1
        last = self.end_of_range()
        if ord(last) < ord(first):
            self.invalid("the ends of a range are in the wrong order")
        if self.peek() == "-" and self.peek(1) != "]":
            self.invalid("a range begins where another one ends")
        return self.cased(((ord(first), ord(last)),))

    def no_range(self, found: Ranges) -> Ranges:
        if self.peek() == "-" and self.peek(1) != "]":
            self.invalid("a range begins with a class")
        return found

    def named(self) -> Ranges:
        end = self.text.find(":]", self.at + 2)
        name = self.text[self.at + 2 : end] if end >= 0 else ""
        found = posix_class(name)
        if found is None:
            if name in ("", "<", ">"):
                self.refuse("the edge of a word [[:<:]]")
            self.invalid("a class of characters is unknown")
        self.at = end + 2
        # Letters of one case are those of any where the case is ignored.
        return posix_class("alpha") or found if self.ignores_case and name in ("upper", "lower") else found

    def end_of_range(self) -> str:
        if self.peek() == "[" and self.peek(1) in (".", "="):
            sign = self.peek(1)
            end = self.text.find(f"{sign}]", self.at + 2)
            if end != self.at + 3:
                self.refuse("a collating element of several characters")
            c, self.at = self.text[self.at + 2], end + 2
            return c
        if self.took("\\"):
            return self.escaped()
        if not self.peek():
            self.invalid("a bracket [ is not closed")
        return self.take()


@lru_cache(maxsize=1_000)
def parse_similar(text: str, escape: str = "\\") -> Pattern:
    """The tree of a pattern of SIMILAR TO, of the whole string. Raises PatternError, and ValueError for a bad escape."""
    if len(escape) > 1:
        raise ValueError(f"invalid escape string {escape!r}: it must be empty or one character")
    out: list[str] = []
    chars = iter(text)
    inside = False  # of brackets [ ]
    for c in chars:
        if escape and c == escape:
            escaped = next(chars, None)
            if escaped is None:
                raise PatternError(text, "it ends with its escape character")
            out.append(escaped if escaped.isalnum() or not escaped.isascii() else f"\\{escaped}")
        elif inside:
            out.append(r"\\" if c == "\\" else c)
            inside = c != "]"
        else:
            inside = c == "["
            out.append({"%": ".*", "_": ".", "(": "(?:", "\\": r"\\", ".": r"\.", "^": r"\^", "$": r"\$"}.get(c, c))
    try:
        found = parse_postgres("".join(out))
    except PatternError as error:
        raise type(error)(text, error.reason, error.help) from None
    return Pattern(text, sequence([Position("text_start"), found.root, Position("text_end")]), 0)
