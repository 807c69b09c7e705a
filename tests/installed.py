"""The built distributions in fresh environments of several Pythons: a project beside modules of the same names, functions, and the guide to Python.

    python -m tests.installed --python python3.12 --python python3.13 --keep dist

Needs a package index. Builds sdist and wheel with `python -m build`, checks them with `twine check`, installs the wheel with pip, runs a program of a
user there, and types the guide in another environment. --keep: a folder for sdist and wheel when all that went well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.distribution import copy_files
from tests.docs.tutorial import type_page
from tests.flowql.test_wheel import USERS
from tests.tidy.tree import ROOT

MODULE = """
from collections.abc import Iterator
import pyarrow as pa
import pyarrow.compute as pc
from flowql import udaf, udf, udtf

@udf
def net(amount: float, vat: float | None) -> float:
    return amount / (1 + (vat or 0.25))

@udf(vectorized=True)
def twice(amount: pa.DoubleArray) -> pa.DoubleArray:
    return pc.multiply(amount, 2.0)

@udtf
def parts(amount: float) -> Iterator[float]:
    yield from [amount / 2] * 2

@udaf(isolation="process")
class Most:
    def init(self) -> float | None:
        return None

    def add(self, most: float | None, amount: float) -> float:
        return amount if most is None else max(most, amount)
"""
QUERIES = """
CREATE STREAM NETS AS SELECT CUSTOMER, NET(AMOUNT, NULL) AS N, TWICE(AMOUNT) AS T FROM ORDERS;
CREATE STREAM HALVES AS SELECT CUSTOMER, PARTS(AMOUNT) AS P FROM ORDERS;
CREATE TABLE MOSTS AS SELECT CUSTOMER, MOST(AMOUNT) AS M FROM ORDERS GROUP BY CUSTOMER;
"""
PROGRAM = """
import sys, time
import flowql
import compiler, runtime
assert compiler.OWN and runtime.OWN

with flowql.Instance("shop") as instance:
    shop = instance.connection
    limit = time.monotonic() + 60
    def settled():
        queries = shop.status()["queries"]
        return all(q["lag"] == 0 and not q.get("building") for q in queries) and shop.sql("SELECT COUNT(*) FROM MOSTS").one() > 0
    while not settled():
        assert time.monotonic() < limit, shop.status()
        time.sleep(0.1)
    time.sleep(0.5)
    amounts = sorted(r["AMOUNT"] for r in shop.sql("SELECT AMOUNT FROM ORDERS").arrow().to_pylist())
    found = shop.sql("SELECT N, T FROM NETS ORDER BY T").arrow().to_pylist()
    assert found == [{"N": a / 1.25, "T": a * 2} for a in amounts], found
    assert shop.sql("SELECT SUM(P) FROM HALVES").one() == sum(amounts)
    assert shop.sql("SELECT MAX(M) FROM MOSTS").one() == amounts[-1]
    assert shop.sql("SELECT SUM(net(M, 1.0)) > 0 FROM MOSTS").one()
    assert not shop.sql("SELECT * FROM DEAD_LETTERS").arrow().num_rows
print(sys.version.split()[0], "as it should be:", flowql.__file__)
"""


def run(*command: object, folder: Path) -> str:
    """What it prints; it must succeed."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(c) for c in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def built(folder: Path) -> Path:
    """The wheel, built from the source distribution of the files of this checkout. Both stand in the folder `dist`."""
    tree = folder / "tree"
    copy_files(tree)
    run(sys.executable, "-m", "venv", folder / "building", folder=folder)
    run(folder / "building/bin/pip", "install", "-q", "build", "twine", folder=folder)
    run(folder / "building/bin/python", "-m", "build", "-o", folder / "dist", tree, folder=folder)
    wheel, archive = next((folder / "dist").glob("*.whl")), next((folder / "dist").glob("*.tar.gz"))
    run(folder / "building/bin/twine", "check", "--strict", wheel, archive, folder=folder)
    return wheel


def lived(python: str, wheel: Path, folder: Path) -> str:
    """What the program of a user says, with that Python."""
    run(python, "-m", "venv", folder / "environment", folder=folder)
    run(folder / "environment/bin/pip", "install", "-q", wheel, folder=folder)
    for name, text in {**USERS, "main.py": PROGRAM}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    flowql = folder / "environment/bin/flowql"
    run(flowql, "init", "shop", "--template", "ksqldb", folder=folder)
    shop = folder / "shop"
    run(flowql, "test", folder=shop)
    run(flowql, "topic", "import", "orders", "orders.jsonl", "--key", "CUSTOMER", "--timestamp", "AT", folder=shop)
    (shop / "prices.py").write_text(MODULE)
    (shop / "flowql.yaml").write_text((shop / "flowql.yaml").read_text() + "functions: [prices]\n")
    (shop / "queries.sql").write_text((shop / "queries.sql").read_text() + QUERIES)
    said = run(folder / "environment/bin/python", "main.py", folder=folder)
    (typed := folder / "typed").mkdir()
    if differs := type_page(typed, wheel, program_of(python)):
        raise SystemExit(f"the guide to Python with {python}:\n{differs}")
    return said


def program_of(python: str) -> str:
    """The file of an interpreter that is named as on the command line; of an environment, what it was made with."""
    return run(python, "-c", "import sys; print(sys._base_executable)", folder=ROOT).strip()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], help="an interpreter; this one if none is given")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="flowql-installed-") as name:
        wheel = built(Path(name))
        print(f"built {wheel.name}")
        for n, python in enumerate(options.python or [sys.executable]):
            folder = Path(name) / str(n)
            folder.mkdir()
            print(lived(python, wheel, folder), end="", flush=True)
        if options.keep:
            shutil.copytree(wheel.parent, options.keep, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
