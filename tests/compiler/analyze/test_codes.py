"""Every code the compiler reports has its page."""

import re
from pathlib import Path

from flowql import compiler
from flowql.compiler.diagnostics.codes import code_pages


def test_codes_have_pages():
    root = Path(compiler.__file__).parent
    places = [*root.glob("analyze/*.py"), *root.glob("catalog/*.py"), *root.glob("physical/*.py"), root / "driver.py"]
    used = {c for p in places for c in re.findall(r'"(FQ\d{4})"', p.read_text(encoding="utf-8"))}
    assert len(used) > 25
    assert used <= set(code_pages()), sorted(used - set(code_pages()))
