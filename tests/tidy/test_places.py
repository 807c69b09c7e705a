"""No tracked text names a place that exists on one machine only, or a host the project does not mean to name."""

from __future__ import annotations

import re

import pytest

from tests.tidy.tree import lines_of, own_files, text_of

# Host -> why it may be named. Reserved example domains may be named everywhere.
HOSTS = {
    "bucket": "a place in an object store, in examples",
    "www.apache.org": "the licence text",
    "localhost": "the instance itself",
    "www.w3.org": "the name of SVG's elements; nothing is fetched from there",
    "127.0.0.1": "the instance itself",
    "json-schema.org": "the name of the JSON Schema dialect",
}
RESERVED = re.compile(r"(^|\.)(example|test|invalid)$|(^|\.)example\.(com|org|net)$")

# Written in pieces, so that this file does not name what it refuses.
_ROOTS = "|".join(["home", "root", "Users", "work", "opt", "mnt", "private", "workspace", "var/folders"])
ABSOLUTE = re.compile(rf"(?<![\w.>)}}$~*-])/(?:{_ROOTS})/\w")
PARENT = re.compile(r"(?<!\.)\.\." + r"/")
URL = re.compile(r"\b(?:https?|ftp|s3|git|ssh)://([^\s/:?#\"'`)>\]}]+@)?([^\s/:?#\"'`)>\]},;]+)")

TEXTS = [p for p in own_files() if text_of(p) is not None]


def findings(text: str) -> list[str]:
    """What a line of text names that it should not."""
    found = [f"absolute path {m.group()}..." for m in ABSOLUTE.finditer(text)]
    found += [f"parent-folder path {m.group()}" for m in PARENT.finditer(text)]
    for match in URL.finditer(text):
        host = match.group(2).lower()
        # Names with a placeholder are made at run time.
        if host not in HOSTS and not RESERVED.search(host) and not re.search(r"[{$%\\<*]", host):
            found.append(f"host {host}")
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/" + "home/ann/x", 1),
        ("see /" + "Users/ann", 1),
        ("a/" + "work/b and src/home/page", 0),
        (".." + "/shared/x", 1),
        ("and so on.../", 0),
        ("http" + "://repo.acme.io/simple", 1),
        ("http" + "://user:pw@repo.acme.io/simple", 1),
        ("http://localhost:8080 https://www.nexmark.example/a", 0),
        ("f'http://{host}:{port}'", 0),
    ],
)
def test_the_rule_finds_what_it_should(text: str, expected: int) -> None:
    assert len(findings(text)) == expected


def test_no_text_names_a_machine_or_a_foreign_host() -> None:
    wrong = [
        f"{path}:{place}: {finding}" for path in TEXTS for place, line in lines_of(path) for finding in findings(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_lock_names_versions_and_hashes_only() -> None:
    lock = next(text_of(p) or "" for p in TEXTS if p.name == "requirements.lock")
    line = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?|")
    wrong = [text for text in lock.splitlines() if not line.fullmatch(text)]
    assert not wrong, wrong
    assert "--hash" in lock


def test_actions_of_workflows_are_pinned_by_commit() -> None:
    """A tag can be moved to other code, which would then run with the rights of the workflow."""
    used = [
        (place, line.split("uses:")[1].split("#")[0].strip())
        for path in own_files()
        if path.parts[0] == ".github"
        for place, line in lines_of(path)
        if "uses:" in line
    ]
    assert used
    assert [u for u in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", u[1])] == []
