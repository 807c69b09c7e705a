"""The rows of stores, as reference values."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

# A key: hashable reference values of the store's key columns in order (lists frozen to tuples, structs to tuples of their
# fields in order). Order of encoded keys = order of these tuples, NULL first.
Key = tuple[Hashable, ...]
# A value: any tuple of reference values, never changed in place: the row of a table, an accumulator, live sessions.
# Its encoding is by msgpack with tags for Decimal, so nested tuples come back as tuples, dicts as dicts.
Value = tuple[Any, ...]

Rows = tuple[list[Key], list[Value]]  # keys and values, row by row
