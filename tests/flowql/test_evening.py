"""A new user's evening, typed into a terminal: from `init` to `stop`, with a mistake in between."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pexpect
import pytest

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 180
PROMPT = "evening> "


class Evening:
    """A bash on a terminal of 120 columns, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "PS1": PROMPT, "TERM": "xterm-256color", "NO_COLOR": "1", "PAGER": "cat"}
        env |= {"XDG_STATE_HOME": str(folder / "state"), "PROMPT_TOOLKIT_NO_CPR": "1", "PYTHONPATH": str(ROOT)}
        self.bash = pexpect.spawn(
            "bash",
            ["--norc", "--noprofile"],
            cwd=str(folder),
            env=env,
            encoding="utf-8",
            dimensions=(40, 120),
            timeout=WAIT_S,
        )
        self.bash.setecho(False)
        self.bash.expect_exact(PROMPT)

    def types(self, command: str, code: int = 0) -> str:
        """What a command prints; its exit code is asked for as a person would."""
        self.bash.sendline(command)
        self.bash.expect_exact(PROMPT)
        printed = self.bash.before
        self.bash.sendline("echo code $?")
        self.bash.expect(r"code (\d+)\r\n")
        found = int(self.bash.match.group(1))
        self.bash.expect_exact(PROMPT)
        assert found == code, f"{command}: exit code {found}\n{printed}"
        return str(printed).replace("\r\n", "\n")

    def opens(self, command: str, *awaited: str) -> None:
        """A program that stays, and what it shows."""
        self.bash.sendline(command)
        for text in awaited:
            self.bash.expect_exact(text)

    def presses(self, keys: str, *awaited: str) -> None:
        self.bash.send(keys)
        for text in awaited:
            self.bash.expect_exact(text)

    def close(self) -> None:
        self.bash.close(force=True)


@pytest.fixture
def evening(tmp_path):
    made = Evening(tmp_path)
    yield made
    made.close()


@pytest.mark.turns("pages")
def test_a_new_users_evening(evening, tmp_path):
    shop = tmp_path / "shop"
    try:
        assert "now type" in evening.types("flowql init shop")
        evening.types("cd shop")
        assert "no mistakes" in evening.types("flowql doctor")

        # deploy, and watch
        assert "5 records" in evening.types(
            "flowql topic import orders orders.jsonl --key customer --timestamp ordered_at"
        )
        assert "spent_per_hour" in evening.types("flowql deploy")
        evening.opens("flowql top --interval 0.3", "CTAS_spent_per_hour", "by share")
        evening.presses("q", PROMPT)

        # break something, read the error, fix it
        evening.types("sed -i 's/SUM(amount) AS spent/SUM(amuont) AS spent/' queries.sql")
        said = evening.types("flowql deploy", code=1)
        assert re.search(r"error\[FQ2002\].*amuont", said)
        assert "queries.sql:" in said
        assert "^^^^^^" in said
        assert "did you mean amount?" in said
        assert "FQ2002" in evening.types("flowql explain FQ2002")
        assert "running" in evening.types("flowql status"), "what was deployed goes on"
        evening.types("sed -i 's/SUM(amuont) AS spent/SUM(amount) AS spent, MAX(amount) AS most/' queries.sql")

        # test it: the expectation is wrong first
        evening.types("sed -i 's/orders: 2, spent: 160}/orders: 2, spent: 160, most: 40}/' tests/orders.yaml")
        said = evening.types("flowql test", code=1)
        assert "1 passed, 1 failed" in said
        assert re.search(r"most.*40[\s\S]*120|120[\s\S]*most.*40", said), said
        evening.types("sed -i 's/most: 40/most: 120/' tests/orders.yaml")
        assert "2 passed, 0 failed" in evening.types("flowql test")
        assert "spent_per_hour" in evening.types("flowql deploy --rebuild")

        # ask, in the shell and without
        evening.opens("flowql shell", "shop>")
        evening.presses("SELECT customer, most FROM spent_per_hour ORDER BY most DESC LIMIT 1;\r", "310.00", "shop>")
        evening.presses("SELECT nope FROM spent_per_hour;\r", "nope", "shop>")
        evening.presses("\\q\r", PROMPT)
        evening.types(
            """flowql topic produce orders 'eve:{"id": 6, "item": "sofa", "amount": 640, "ordered_at": "2026-01-01T10:20:00Z"}'"""
        )
        said = evening.types("flowql subscribe large_orders --from earliest --limit 3")
        assert "sofa" in said
        assert "sofa" in evening.types('flowql query "SELECT item FROM large_orders WHERE amount > 600"')

        # change a priority, look at the picture, stop
        evening.types("flowql priority set spent_per_hour critical")
        assert re.search(r"CTAS_spent_per_hour +critical", evening.types("flowql priority"))
        assert "spent_per_hour" in evening.types("flowql lineage")
        evening.types("flowql stop")
        assert "640" in evening.types('flowql query "SELECT MAX(most) FROM spent_per_hour"'), (
            "a stopped one answers, too"
        )
    finally:
        if shop.exists():
            evening.bash.sendcontrol("c")
            evening.bash.sendline(f"flowql stop -p {shop}")
            evening.bash.expect_exact(PROMPT)
