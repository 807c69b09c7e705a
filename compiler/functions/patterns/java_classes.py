r"""Classes of characters of java.util.regex: `\d`, `\p{Alpha}`, `\p{Lu}` and their like."""

from __future__ import annotations

from functools import lru_cache

from flowql.compiler.functions.patterns import code_points as cp
from flowql.compiler.functions.patterns.code_points import Ranges

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
