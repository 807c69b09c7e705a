"""Arrow without pandas, in a process that does not use it.

With the first array that Arrow makes it looks for pandas, for the sake of arguments that are pandas objects. Where pandas is
installed (PySpark asks for it) that is 0.3 s of processor time, 1.5 s where its bytecode is not cached, in the middle of the first
batch of records and with the interpreter lock held, and 50 MB of memory:
`python -X importtime -c "import pyarrow; pyarrow.array([1])"`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_ARROW, _PANDAS = "pyarrow", "pandas"


class _Hidden:
    """An entry of `sys.meta_path` that finds no pandas."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _PANDAS:
            raise ModuleNotFoundError(name=name)
        return None


class _OnImport(Loader):
    """An entry of `sys.meta_path` for Arrow that is not imported yet: it leaves pandas out as soon as Arrow is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _ARROW:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        leave_pandas_out()


def leave_pandas_out() -> None:
    """From now on Arrow takes and gives no pandas objects in this process; pandas itself can be imported.

    Nothing changes where pandas is imported already. For processes of our own: Arrow cannot be made to look again. Arrow is not
    imported for this: it takes 0.1 s, and some commands do not need it.
    """
    if _PANDAS in sys.modules:
        return
    if _ARROW not in sys.modules:
        sys.meta_path.insert(0, _OnImport())
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        sys.modules[_ARROW].array([0])  # it looks once
    finally:
        sys.meta_path.remove(hidden)
