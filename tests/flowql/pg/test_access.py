"""Who may connect: passwords, TLS, and addresses that other machines reach."""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowql.config.load import read_project
from flowql.errors import CommandError
from flowql.pg.errors import PgError
from flowql.pg.scram import Exchange, Verifier
from tests.certificates import certificate_in
from tests.flowql.pg.conftest import Shop, started
from tests.flowql.pg.wire import Wire, fields_of

PASSWORD = "pässword ' \\"
needs_psql = pytest.mark.skipif(
    shutil.which("psql") is None or shutil.which("openssl") is None, reason="needs psql and openssl"
)


def test_scram_is_that_of_the_standard() -> None:
    """The exchange of RFC 7677, section 3."""
    verifier = Verifier.of("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    exchange = Exchange(verifier, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    challenge = exchange.first("n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge == "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p="
    assert (
        exchange.last(final + "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
        == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert exchange.last(final + base64.b64encode(bytes(32)).decode()) is None
    for wrong in ("n,,n=user", "p=tls-unique,,n=user,r=x", "", "n,,m=x,r=y"):
        with pytest.raises(PgError, match="malformed"):
            Exchange(verifier).first(wrong)
    for wrong in ("c=biws,r=other,p=AAAA", "c=eSws," + final[7:] + "AAAA", final + "!"):
        with pytest.raises(PgError, match="malformed"):
            exchange.last(wrong)


def test_a_verifier_of_postgresql_is_taken_as_it_is() -> None:
    made = Verifier.of("pencil", b"salt")
    keys = f"{base64.b64encode(made.stored_key).decode()}:{base64.b64encode(made.server_key).decode()}"
    assert Verifier.of(f"SCRAM-SHA-256$4096:{base64.b64encode(b'salt').decode()}${keys}") == made


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("guarded")
    certificate_in(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PG_TEST_PASSWORD", PASSWORD)
        pg = "{{port: {port}, address: 0.0.0.0, users: {{ada: '${{PG_TEST_PASSWORD}}'}}, certificate: cert.pem, key: key.pem}}"
        yield from started(folder, pg, rows="")


def psql(shop: Shop, sql: str, **given: str) -> str:
    environment = {
        **os.environ,
        "PGPORT": str(shop.port),
        "PGHOST": "localhost",
        "PGDATABASE": "x",
        "PGUSER": "ada",
        "PGPASSWORD": PASSWORD,
        "PGCONNECT_TIMEOUT": "20",
        **given,
    }
    done = subprocess.run(
        ["psql", "-X", "-At", "-w", "-c", sql], env=environment, capture_output=True, text=True, timeout=60
    )
    return done.stdout + done.stderr


@needs_psql
def test_a_password_over_tls(guarded: Shop) -> None:
    root = str(guarded.folder / "cert.pem")
    assert psql(guarded, "SELECT 1", PGSSLMODE="verify-full", PGSSLROOTCERT=root) == "1\n"
    assert psql(guarded, "SELECT COUNT(*) FROM kinds a, kinds b", PGSSLMODE="require") == "0\n"
    for given in ({"PGPASSWORD": "wrong"}, {"PGUSER": "eve"}, {"PGPASSWORD": ""}):
        shown = psql(guarded, "SELECT 1", PGSSLMODE="require", **given)
        assert "password authentication failed" in shown or "password supplied" in shown, shown
    assert "takes only connections with TLS" in psql(guarded, "SELECT 1", PGSSLMODE="disable")


def test_without_tls_nothing_is_told(guarded: Shop) -> None:
    with pytest.raises(EOFError):
        Wire(guarded.port)


def test_an_unknown_user_is_asked_for_a_password_as_well(guarded: Shop) -> None:
    """So that names of users cannot be found out."""
    for user in ("ada", "eve"):
        with Wire(guarded.port, start=False) as w:
            w.socket.sendall(struct.pack("!ii", 8, 80_877_103))
            assert w.socket.recv(1) == b"S"
            context = ssl.create_default_context(cafile=str(guarded.folder / "cert.pem"))
            secure = context.wrap_socket(w.socket, server_hostname="localhost")
            body = f"user\0{user}\0\0".encode()
            secure.sendall(struct.pack("!ii", len(body) + 8, 196_608) + body)
            stream = secure.makefile("rb")
            assert stream.read(1) == b"R"
            size = struct.unpack("!i", stream.read(4))[0]
            assert stream.read(size - 4) == struct.pack("!i", 10) + b"SCRAM-SHA-256\0\0"
            message = b"SCRAM-SHA-256\0" + struct.pack("!i", 16) + b"n,,n=,r=abcdefgh"
            secure.sendall(b"p" + struct.pack("!i", len(message) + 4) + message)
            stream.read(1)
            challenge = stream.read(struct.unpack("!i", stream.read(4))[0] - 4)
            assert b"i=4096" in challenge
            nonce = challenge[4:].split(b",")[0][2:]
            proof = b"c=biws,r=" + nonce + b",p=" + base64.b64encode(bytes(32))
            secure.sendall(b"p" + struct.pack("!i", len(proof) + 4) + proof)
            assert stream.read(1) == b"E"
            assert fields_of(stream.read(struct.unpack("!i", stream.read(4))[0] - 4))["C"] == "28P01"
            secure.close()


USERS = """{{port: {port}, users: {{
  all: p, reader: {{password: p, roles: read}}, some: {{password: p, roles: [read, write], results: [spent, notes]}},
  writer: {{password: p, roles: [write]}}, operator: {{password: p, roles: operate}}, deployer: {{password: p, roles: [deploy]}}}}}}"""
NO, NONE, REFUSED = "42501", "42P01", "0A000"
# Per statement, what each user gets: rows or a tag, or an SQLSTATE. Users come one after the other.
RIGHTS: dict[str, dict[str, str]] = {
    "SELECT 1": dict.fromkeys(("all", "reader", "some", "writer", "operator", "deployer"), "1"),
    "SELECT customer FROM spent WHERE orders = 2": {"all": "ada", "reader": "ada", "some": "ada", "writer": NO, "operator": NO, "deployer": NO},
    "SELECT COUNT(*) FROM orders": {"all": "3", "reader": "3", "some": NONE, "writer": NO, "operator": NO, "deployer": NO},
    "SELECT COUNT(*) FROM nowhere": {"all": NONE, "reader": NONE, "some": NONE, "writer": NO, "operator": NO, "deployer": NO},
    "WITH o AS (SELECT * FROM orders) SELECT COUNT(*) FROM o": {"all": "3", "reader": "3", "some": NONE, "writer": NO},
    "SELECT (SELECT COUNT(*) FROM orders) FROM notes": {"some": NONE},
    "SELECT COUNT(*) FROM pg_class WHERE relname IN ('orders', 'spent')": {"all": "2", "reader": "2", "some": "1", "writer": "0", "operator": "0"},
    "SELECT table_name FROM information_schema.tables WHERE table_name = 'orders'": {"all": "orders", "some": "", "deployer": ""},
    "SELECT to_regclass('orders') IS NULL": {"all": "f", "some": "t", "writer": "t"},
    "EXPLAIN SELECT * FROM orders": {"some": NONE, "writer": NO},
    "COPY (SELECT COUNT(*) FROM orders) TO STDOUT": {"all": "3", "reader": "3", "some": NONE, "writer": NO, "operator": NO},
    "COPY orders (customer) TO STDOUT": {"some": NONE, "writer": NO, "deployer": NO},
    "BEGIN; SELECT COUNT(*) FROM orders; ROLLBACK": {"all": "BEGIN\n3\nROLLBACK", "some": NONE, "writer": NO},
    "BEGIN; DECLARE c CURSOR FOR SELECT * FROM orders; ROLLBACK": {"reader": "BEGIN\nDECLARE CURSOR\nROLLBACK", "some": NONE, "writer": NO},
    "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE orders; ROLLBACK": {"reader": "BEGIN\nDECLARE CURSOR\nROLLBACK", "some": NONE, "writer": NO, "operator": NO},
    "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE notes; ROLLBACK": {"some": "BEGIN\nDECLARE CURSOR\nROLLBACK", "deployer": NO},
    "INSERT INTO notes VALUES (1, 'a')": {"reader": NO, "operator": NO, "deployer": NO, "writer": "INSERT 0 1"},
    "UPDATE notes SET note = 'b' WHERE id = 1": {"reader": NO, "operator": NO, "some": "UPDATE 0", "writer": "UPDATE 1"},
    "INSERT INTO notes SELECT 7, customer FROM orders WHERE id = 2": {"some": NONE, "writer": NONE, "reader": NO},
    "UPDATE notes SET note = 'c' WHERE id IN (SELECT id FROM orders)": {"some": NONE, "writer": NONE, "reader": NO},
    "BEGIN; DELETE FROM notes WHERE id = 1; COMMIT": {"some": "BEGIN\nDELETE 0\nCOMMIT", "reader": NO, "writer": "BEGIN\nDELETE 1\nCOMMIT"},
    "DELETE FROM orders WHERE id = 77": {"some": NONE, "writer": "DELETE 0", "reader": NO},
    "COPY orders FROM STDIN": {"some": NONE, "reader": NO, "operator": NO},
    "CREATE TABLE x (a INT)": {"all": REFUSED, "deployer": REFUSED, "reader": NO, "writer": NO, "operator": NO, "some": NO},
    "DROP TABLE orders": {"all": REFUSED, "deployer": REFUSED, "reader": NO, "writer": NO, "operator": NO, "some": NO},
}  # fmt: skip


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    yield from started(tmp_path_factory.mktemp("ranked"), USERS)


@needs_psql
def test_each_kind_of_statement_needs_its_role(ranked: Shop) -> None:
    wrong = []
    for user in ("all", "reader", "some", "writer", "operator", "deployer"):
        asked = [sql for sql, given in RIGHTS.items() if user in given]
        script = "\\set VERBOSITY sqlstate\n" + "".join(f"\\echo =====\n{sql};\nROLLBACK;\n" for sql in asked)
        environment = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(ranked.port),
            "PGUSER": user,
            "PGPASSWORD": "p",
            "PGDATABASE": "x",
        }
        done = subprocess.run(
            ["psql", "-X", "-At", "-v", "ON_ERROR_STOP=0"],
            input=script,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        shown = done.stdout.split("=====\n")[1:]
        assert len(shown) == len(asked), done.stdout
        for sql, text in zip(asked, shown, strict=True):
            wanted, lines = RIGHTS[sql][user], text.replace("WARNING:  25P01\n", "").removesuffix("ROLLBACK\n").strip()
            states = [line.rpartition(" ")[2] for line in lines.splitlines() if line.startswith("ERROR: ")]
            found = states[0] if states else lines
            if found != wanted:
                wrong.append(f"{user}: {sql}\n  {found!r}, not {wanted!r}")
    assert not wrong, "\n".join(wrong)
    lines = [json.loads(line) for line in (ranked.folder / "data" / "audit.jsonl").read_text().splitlines()]
    by_user = [(x["who"], x["request"], x["action"], x["status"], x.get("results")) for x in lines]
    assert ("writer", "postgres INSERT", "write", "00000", ["notes"]) in by_user
    assert ("some", "postgres COMMIT", "write", "00000", ["notes"]) in by_user
    assert ("some", "postgres DELETE", "write", "42P01", None) in by_user
    assert ("reader", "postgres INSERT", "write", "42501", None) in by_user
    assert ("writer", "postgres SELECT", "read", "42501", None) in by_user
    assert ("operator", "postgres DROP", "deploy", "42501", None) in by_user
    assert not [x for x in lines if x["action"] == "read" and x["status"] == "00000"]


@pytest.mark.parametrize(
    ("pg", "codes"),
    [
        ("5432", []),
        ("{port: 5432, address: '::1'}", []),
        ("{port: 5432, address: localhost, users: {ada: secret}}", []),
        ("{port: 5432, address: 0.0.0.0}", ["FQ3020", "FQ3020"]),
        ("{port: 5432, address: example.com, users: {ada: x}}", ["FQ3020"]),
        ("{port: 5432, certificate: c.pem}", ["FQ3006"]),
        ("{address: 127.0.0.1}", ["FQ3006"]),
        ("{port: 0}", ["FQ3004"]),
        ("{port: 5432, users: {ada: {password: x, roles: [read, write], results: orders}}}", []),
        ("{port: 5432, users: {ada: {password: {env: HOME}}}}", []),
        ("{port: 5432, users: {ada: {roles: read}}}", ["FQ3006"]),
        ("{port: 5432, users: {ada: {password: x, roles: admin}}}", ["FQ3004"]),
    ],
)
def test_what_flowql_yaml_takes(tmp_path: Path, pg: str, codes: list[str]) -> None:
    (tmp_path / "flowql.yaml").write_text(f"name: x\nsql: []\ntargets:\n  default: {{pg: {pg}}}\n")
    assert [d.code for d in read_project(tmp_path).diagnostics if d.severity == "error" and d.code != "FQ3014"] == codes


def test_a_certificate_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    with pytest.raises(CommandError, match="cannot use the certificate"):
        next(started(tmp_path, "{{port: {port}, certificate: cert.pem, key: cert.pem}}"))


def test_a_port_that_is_taken_stops_the_start(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot listen"):
        next(started(tmp_path, str(shop.port)))
