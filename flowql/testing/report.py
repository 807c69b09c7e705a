"""Reports of tests for people and for build servers."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from flowql.testing.case import Verdict


def lines_of(verdict: Verdict) -> list[str]:
    """A failed test in words: what was expected and found, and what may explain it."""
    case = verdict.case
    out = [f"FAILED {case.name} ({case.file}:{case.line})"]
    for finding in verdict.findings:
        out += [f"  {finding.title}", *(f"  {line}" for line in finding.lines)]
    return [*out, *(f"  hint: {h}" for h in verdict.hints)]


def summary(verdicts: Sequence[Verdict], seconds: float) -> str:
    failed = sum(not v.passed for v in verdicts)
    return f"{len(verdicts) - failed} passed, {failed} failed in {seconds:.1f} s"


def document(verdicts: Sequence[Verdict]) -> dict[str, object]:
    """The result of `-o json`."""
    tests = [
        {
            "name": v.case.name,
            "file": v.case.file,
            "line": v.case.line,
            "passed": v.passed,
            "seconds": round(v.seconds, 4),
            "findings": [{"title": f.title, "lines": list(f.lines)} for f in v.findings],
            "hints": list(v.hints),
        }
        for v in verdicts
    ]
    passed = sum(v.passed for v in verdicts)
    return {"passed": passed, "failed": len(verdicts) - passed, "tests": tests}


def junit(verdicts: Sequence[Verdict], suite: str) -> str:
    """The XML that build servers read."""
    root = Xml.Element("testsuites")
    failures = str(sum(not v.passed for v in verdicts))
    total = f"{sum(v.seconds for v in verdicts):.3f}"
    node = Xml.SubElement(root, "testsuite", name=suite, tests=str(len(verdicts)), failures=failures, time=total)
    for v in verdicts:
        case = Xml.SubElement(node, "testcase", name=v.case.name, classname=v.case.file, time=f"{v.seconds:.3f}")
        if not v.passed:
            failure = Xml.SubElement(case, "failure", message=v.findings[0].title)
            failure.text = "\n".join(lines_of(v))
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
