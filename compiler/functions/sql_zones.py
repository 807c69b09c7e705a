"""Time zones as PostgreSQL reads them.

`AT TIME ZONE` takes an abbreviation, which is a fixed offset; a name of the time zone database in any case; or a POSIX specification, whose offsets count
to the west: `UTC+2` and `+02:00` are two hours behind UTC. A signed number behind a moment in a text counts to the east.
"""

from __future__ import annotations

import datetime as dt
import io
import struct
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

# Seconds east of UTC -> abbreviations, which are fixed offsets in summer and winter.

# --- abbreviations that PostgreSQL reads by default (`timezonesets/Default` of version 15) ---

_FIXED = {
    -36000: "HST TAHT",
    -34200: "MART",
    -32400: "AKST GAMT",
    -28800: "AKDT PST",
    -25200: "MST PDT",
    -21600: "CST MDT GALT",
    -18000: "ACT COT CDT EST PET",
    -14400: "BOT EDT AMT AST",
    -12600: "NFT NST",
    -10800: "BRA BRT CLST GFT PMST PYST UYT WGT ADT",
    -9000: "NDT",
    -7200: "BRST FNT PMDT UYST WGST",
    -3600: "EGT FNST AZOT",
    0: "EGST AZOST GMT UCT UT UTC Z ZULU WET",
    3600: "WAT BST CET MET MEZ WETDST",
    7200: "SAST IST BDST CEST CETDST EET MEST MESZ METDST",
    10800: "EAT IDT EEST EETDST FET",
    12600: "IRT",
    14400: "MSD MUT RET SCT",
    16200: "AFT",
    18000: "PKT TJT UZT MUST MVT TFT",
    20700: "NPT",
    21600: "ALMT BDT BTT KGST PKST UZST XJT YEKST",
    23400: "MMT",
    25200: "ALMST ICT WAST CXT",
    28800: "BNT BORT CCT HKT MYT PHT AWST WADT",
    31500: "ACWST",
    32400: "JAYT JST KST ULAST AWSST WDT PWT",
    34200: "ACST CAST",
    36000: "DDUT KDT AEST LIGT CHUT MPT PGT TRUT YAPT",
    37800: "ACSST ACDT CADT LHST SADT",
    39600: "AESST AEDT PONT VUT",
    43200: "NZT FJT GILT MHT NZST TVT WAKT WFT",
    45900: "CHAST",
    46800: "FJST NZDT TOT",
    49500: "CHADT",
}
OFFSETS_S = {name: seconds for seconds, names in _FIXED.items() for name in names.split()}

# Abbreviations whose offset changed over the years -> the zone that PostgreSQL asks for it.
CHANGING = {
    "ART": "America/Argentina/Buenos_Aires",
    "ARST": "America/Argentina/Buenos_Aires",
    "CLT": "America/Santiago",
    "GYT": "America/Guyana",
    "PYT": "America/Asuncion",
    "VET": "America/Caracas",
    "DAVT": "Antarctica/Davis",
    "MAWT": "Antarctica/Mawson",
    "AMST": "Asia/Yerevan",
    "ANAST": "Asia/Anadyr",
    "ANAT": "Asia/Anadyr",
    "AZST": "Asia/Baku",
    "AZT": "Asia/Baku",
    "GEST": "Asia/Tbilisi",
    "GET": "Asia/Tbilisi",
    "IRKST": "Asia/Irkutsk",
    "IRKT": "Asia/Irkutsk",
    "KGT": "Asia/Bishkek",
    "KRAST": "Asia/Krasnoyarsk",
    "KRAT": "Asia/Krasnoyarsk",
    "LKT": "Asia/Colombo",
    "MAGST": "Asia/Magadan",
    "MAGT": "Asia/Magadan",
    "NOVST": "Asia/Novosibirsk",
    "NOVT": "Asia/Novosibirsk",
    "OMSST": "Asia/Omsk",
    "OMST": "Asia/Omsk",
    "PETST": "Asia/Kamchatka",
    "PETT": "Asia/Kamchatka",
    "SGT": "Asia/Singapore",
    "TMT": "Asia/Ashgabat",
    "ULAT": "Asia/Ulaanbaatar",
    "VLAST": "Asia/Vladivostok",
    "VLAT": "Asia/Vladivostok",
    "YAKST": "Asia/Yakutsk",
    "YAKT": "Asia/Yakutsk",
    "YEKT": "Asia/Yekaterinburg",
    "FKST": "Atlantic/Stanley",
    "FKT": "Atlantic/Stanley",
    "LHDT": "Australia/Lord_Howe",
    "MSK": "Europe/Moscow",
    "VOLT": "Europe/Volgograd",
    "IOT": "Indian/Chagos",
    "CKT": "Pacific/Rarotonga",
    "EASST": "Pacific/Easter",
    "EAST": "Pacific/Easter",
    "KOST": "Pacific/Kosrae",
    "LINT": "Pacific/Kiritimati",
    "NUT": "Pacific/Niue",
    "TKT": "Pacific/Fakaofo",
}


_NAME_MAX = 255  # characters
_DAY_S = 86_400
_HOURS_MAX = 167  # of a POSIX offset
_EAST_HOURS_MAX = 15  # of an offset behind a moment
_DEFAULT_RULES = ",M3.2.0,M11.1.0"  # of a POSIX zone with summer time that does not name its days
_DIGITS = frozenset("0123456789")


def _unknown(name: str) -> ValueError:
    return ValueError(f'time zone "{name}" not recognized')


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Names of the database by their upper case. `localtime` is a zone of one machine, so it is left out."""
    return {name.upper(): name for name in available_timezones() if name != "localtime"}


@lru_cache(maxsize=512)
def zone_named(name: str) -> dt.tzinfo:
    """The zone that `AT TIME ZONE name` means. Raises ValueError."""
    upper = name.upper()
    if upper in CHANGING:
        raise ValueError(
            f'the abbreviation "{name}" meant several offsets, which is not supported: use {CHANGING[upper]}'
        )
    if upper in OFFSETS_S:
        return dt.timezone(dt.timedelta(seconds=OFFSETS_S[upper]))
    found = _names().get(upper) if len(name) <= _NAME_MAX else None
    if found is not None:
        return ZoneInfo(found)
    if len(name) > _NAME_MAX or not upper.isascii():
        raise _unknown(name)
    return _posix(name, upper)


@lru_cache(maxsize=512)
def zone_behind(text: str) -> dt.tzinfo:
    """The zone that stands behind a moment in a text. A signed number counts to the east. Raises ValueError."""
    return _fixed(-_east_s(text), text) if text[:1] in ("+", "-") else zone_named(text)


def zone_given(text: str) -> dt.tzinfo:
    """The zone of an argument of MAKE_TIMESTAMPTZ. Raises ValueError."""
    if text[:1] in _DIGITS:
        raise ValueError(f'invalid input syntax for type numeric time zone: "{text}"')
    return zone_behind(text)


def _east_s(text: str) -> int:
    """`+05:30`, `-8`, `+0530`, `+05:30:15` in seconds. Raises ValueError."""
    parts = text[1:].split(":")
    if len(parts) == 1 and len(text) > 3:
        parts = [text[1:-2], text[-2:]]
    if not all(p and _DIGITS.issuperset(p) and len(p) <= 4 for p in parts) or len(parts) > 3:
        raise ValueError(f'invalid input syntax for type numeric time zone: "{text}"')
    hours, minutes, seconds = (*map(int, parts), 0, 0)[:3]
    if hours > _EAST_HOURS_MAX or minutes > 59 or seconds > 59:
        raise ValueError(f'time zone displacement out of range: "{text}"')
    east = (hours * 60 + minutes) * 60 + seconds
    return -east if text[0] == "-" else east


def _fixed(west_s: int, name: str) -> dt.tzinfo:
    if abs(west_s) >= _DAY_S:
        raise ValueError(f'time zone "{name}" is a day or more from UTC, which is not supported')
    return dt.timezone(dt.timedelta(seconds=-west_s))


# --- POSIX specifications ---


def _posix(name: str, upper: str) -> dt.tzinfo:
    """The zone of `EST5`, `FOO5BAR`, `<+03>-3` or `EST5EDT,M3.2.0,M11.1.0`. Raises ValueError."""
    at = _word(upper, 0)
    west_s, at = _west(upper, at, name)
    if at == len(upper):
        return _fixed(west_s, name)
    start, at = at, _word(upper, at)
    if at == start:
        raise _unknown(name)
    summer_s = west_s - 3600
    if at < len(upper) and upper[at] not in ",;":
        summer_s, at = _west(upper, at, name)
    return _with_summer(name, west_s, summer_s, upper[at:].replace(";", ",") or _DEFAULT_RULES)


def _word(text: str, at: int) -> int:
    """The end of an abbreviation, in angle brackets or up to a digit, a comma or a sign."""
    if text[at : at + 1] == "<":
        return text.find(">", at) + 1 or len(text)
    while at < len(text) and text[at] not in _DIGITS and text[at] not in ",+-":
        at += 1
    return at


def _west(text: str, at: int, name: str) -> tuple[int, int]:
    """Seconds to the west in `hh[:mm[:ss]]` with or without a sign, and where they end. Raises ValueError."""
    sign = -1 if text[at : at + 1] == "-" else 1
    at += text[at : at + 1] in ("+", "-")
    total = 0
    for unit, most in ((3600, _HOURS_MAX), (60, 59), (1, 60)):
        end = at
        while end < len(text) and text[end] in _DIGITS:
            end += 1
        if end == at or end - at > 3 or int(text[at:end]) > most:
            raise _unknown(name)
        total, at = total + int(text[at:end]) * unit, end
        if text[at : at + 1] != ":":
            break
        at += 1
    return sign * total, at


def _with_summer(name: str, west_s: int, summer_s: int, rules: str) -> dt.tzinfo:
    """A zone of two offsets. It is made by Python's reader of zone files, whose last line has such rules in the same notation."""
    _fixed(west_s, name), _fixed(summer_s, name)
    line = f"<W>{_hms(west_s)}<S>{_hms(summer_s)}{rules}\n".encode()
    head = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 2)
    body = struct.pack(">lbb", -west_s, 0, 0) + b"W\0"
    try:
        return ZoneInfo.from_file(io.BytesIO((head + body) * 2 + b"\n" + line), key=name)
    except ValueError as error:
        raise _unknown(name) from error


def _hms(seconds: int) -> str:
    minutes, s = divmod(abs(seconds), 60)
    return f"{'-' if seconds < 0 else ''}{minutes // 60}:{minutes % 60:02d}:{s:02d}"
