"""`flowql import sql` as it is typed: text on stdout or in a file, what is listed on stderr, the exit code."""

import json

from tests.flowql.cli.conftest import flowql

__all__ = ["flowql"]

SOURCE = """CREATE TABLE orders (id NUMBER(38, 0) PRIMARY KEY, customer STRING);
SELECT IFF(id > 1, 'x', 'y') AS size FROM orders;
CREATE VIEW v AS
  SELECT id, OBJECT_CONSTRUCT('a', id) AS o FROM orders;
"""


def test_translates_and_lists(flowql, tmp_path):
    file = tmp_path / "models.sql"
    file.write_text(SOURCE)
    done = flowql("import", "sql", "--from", "snowflake", str(file))
    assert done.code == 1
    assert "CREATE TABLE orders (\n  id NUMERIC(38, 0) PRIMARY KEY,\n  customer TEXT\n);" in done.out
    assert "models.sql:3 is not translated" in done.out
    assert "models.sql:4:14" in done.err
    assert "the function OBJECT_CONSTRUCT is not translated" in done.err
    counts = [line.split()[1:] for line in done.err.splitlines()[-2:]]
    assert counts == [["translated", "listed"], ["2", "1"]]


def test_writes_a_file_once(flowql, tmp_path):
    file, to = tmp_path / "a.sql", tmp_path / "out.sql"
    file.write_text("SELECT TRIM('\u2003a') AS v;")
    done = flowql("import", "sql", "--from", "trino", str(file), "--to", str(to))
    assert done.code == 0
    assert done.out == ""
    assert to.read_text().startswith("SELECT\n  BTRIM(")
    assert "\r" not in to.read_bytes().decode()
    again = flowql("import", "sql", "--from", "trino", str(file), "--to", str(to))
    assert again.code != 0
    assert "nothing was written" in again.err


def test_as_json(flowql, tmp_path):
    file = tmp_path / "a.sql"
    file.write_text("SELECT 1;\nSELECT ROUND(2.5e0)")
    done = flowql("import", "sql", "--from", "spark", str(file), "-o", "json")
    first, second = json.loads(done.out)["statements"]
    assert first["sql"].split() == ["SELECT", "1"]
    assert second["sql"] is None
    assert second["listed"][0]["code"] == "FQ1016"


def test_a_file_that_is_no_text(flowql, tmp_path):
    file = tmp_path / "a.sql"
    file.write_bytes(b"SELECT '\xff\xfe'")
    done = flowql("import", "sql", "--from", "spark", str(file))
    assert "FQ3015" in done.err
    assert done.code != 0
