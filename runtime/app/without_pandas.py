"""Arrow without pandas, in a process that does not use it.

With the first array that Arrow makes it looks for pandas, for the sake of arguments that are pandas objects. Where pandas is
installed (PySpark asks for it) that is 0.3 s of processor time, 1.5 s where its bytecode is not cached, in the middle of the first
batch of records and with the interpreter lock held, and 50 MB of memory:
`python -X importtime -c "import pyarrow; pyarrow.array([1])"`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa

_PANDAS = "pandas"


class _Hidden:
    """An entry of `sys.meta_path` that finds no pandas."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _PANDAS:
            raise ModuleNotFoundError(name=name)
        return None


def leave_pandas_out() -> None:
    """From now on Arrow takes and gives no pandas objects in this process; pandas itself can be imported.

    Nothing changes where pandas is imported already. For processes of our own: Arrow cannot be made to look again.
    """
    if _PANDAS in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])  # it looks once
    finally:
        sys.meta_path.remove(hidden)
