"""Verdicts for a CI system: JUnit XML and a Markdown summary. Whatever a name holds, it is text there and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from audit.result import Verdict
from audit.text import printable, redact

# What XML 1.0 cannot hold, even as a reference.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKUP = re.compile(r"[\\`*_{}\[\]()#+\-.!|~$]")
# CI systems and forges turn these into mentions, references and links wherever they stand; a space without width stops that.
_ACTIVE = re.compile(r"@|#(?=\w)|:(?=//)|www(?=\.)|(?<=:)(?=:)", re.IGNORECASE)
_NO_WIDTH = "\u200b"
_WORDS = {"pass": "PASS", "fail": "FAIL", "undecided": "UNDECIDED"}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One model's verdict; `label` is what readers know the model by."""

    label: str
    verdict: Verdict


def junit(judged: Sequence[Judged]) -> bytes:
    """JUnit XML: a suite per model, a case per requirement. Undecided is a failure: a gate that knows nothing stays shut."""
    root = ElementTree.Element("testsuites", name="audit gate")
    for one in judged:
        verdict, label = one.verdict, _xml(one.label)
        suite = ElementTree.SubElement(root, "testsuite", name=label)
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in (("policy", verdict.policy), ("policy_sha256", verdict.policy_digest)):
            ElementTree.SubElement(properties, "property", name=name, value=_xml(value))
        for rule in verdict.rules:
            name = _xml(f"{rule.requirement} {rule.required}")
            case = ElementTree.SubElement(suite, "testcase", classname=f"{_xml(verdict.policy)}.{label}", name=name, time="0")
            if rule.status != "pass":
                message = f"{_WORDS[rule.status]}, measured {rule.measured}"
                failure = ElementTree.SubElement(case, "failure", type=rule.status, message=_xml(message))
                failure.text = _xml(rule.because)
        _count(suite, [verdict])
    _count(root, [one.verdict for one in judged])
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def markdown(judged: Sequence[Judged]) -> str:
    """A Markdown summary: the verdict of every model, and its requirements as a table, those that are not met first."""
    parts = []
    for one in judged:
        verdict = one.verdict
        parts += [
            f"### {_cell(one.label)}: {_WORDS[verdict.status]}",
            "",
            f"Policy {_cell(verdict.policy)} (sha256 {_cell(verdict.policy_digest[:12])}): {_cell(verdict.sentence)}.",
            "",
            "| Outcome | Requirement | Required | Measured | Because |",
            "|---|---|---|---|---|",
        ]
        for rule in sorted(verdict.rules, key=lambda rule: list(_WORDS).index(rule.status), reverse=True):
            cells = (_WORDS[rule.status], *map(_cell, (rule.requirement, rule.required, rule.measured, rule.because)))
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)


def _count(element: ElementTree.Element, verdicts: Sequence[Verdict]) -> None:
    rules = [rule for verdict in verdicts for rule in verdict.rules]
    counts = {"tests": len(rules), "failures": sum(rule.status != "pass" for rule in rules), "errors": 0, "skipped": 0}
    for name, count in counts.items():
        element.set(name, str(count))


def _xml(text: str) -> str:
    return _NO_XML.sub("", printable(redact(text), 500))


def _cell(text: str) -> str:
    """Text that Markdown shows as it is: no markup, HTML, mention, link or end of a table's cell."""
    text = _ACTIVE.sub(lambda match: f"{match[0]}{_NO_WIDTH}", _xml(text))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(lambda match: f"\\{match[0]}", text) or " "
