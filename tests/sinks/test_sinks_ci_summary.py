"""JUnit and Markdown of verdicts: counted right, and inert whatever a name holds."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from sample_judgement import verdict

from audit.result import RuleOutcome, Verdict
from audit.sinks.ci_summary import Judged, junit, markdown

HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "::error::stop",
    "x\n::set-output name=a::b",
    "##vso[task.complete result=Succeeded;]",
    "a ##[error] b ##teamcity[buildStop]",
    "]]></failure><testcase/>",
    "a | b || c",
    "``` `code` ```",
    "\u202egpj.exe\u200f\u2066",
    '<script>alert("x")</script><img src=x onerror=1>',
    "@octocat and @team/all fix #12, closes #13",
    "[link](https://evil.example) https://evil.example www.evil.example ![i](http://e.x/p.png)",
    "bad\x00\x0b\ufffe\uffffchars",
    "\\| \\` backslashes \\",
    "# heading\n- list\n> quote\n| --- |",
    "&lt;b&gt; &#64;",
)


def judged(text: str) -> Judged:
    rule = RuleOutcome(requirement=text, status="fail", required=text, measured=text, because=text)
    whole = Verdict(policy=text, policy_digest="ab" * 32, status="fail", sentence=text, rules=(rule, replace(rule, status="pass")))
    return Judged(label=text, verdict=whole)


def test_junit_counts_every_line_and_undecided_is_a_failure():
    failing, passing = (Judged(label=name, verdict=verdict(0.97, robust)) for name, robust in (("one", 0.1), ("two", 0.8)))
    root = ElementTree.fromstring(junit([failing, passing]))
    assert root.tag == "testsuites"
    assert {key: root.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "2",
        "errors": "0",
        "skipped": "0",
    }
    one, two = root.findall("testsuite")
    assert (one.get("name"), one.get("tests"), one.get("failures")) == ("one", "3", "2")
    assert (two.get("name"), two.get("tests"), two.get("failures")) == ("two", "3", "0")
    assert [failure.get("type") for failure in one.iter("failure")] == ["fail", "undecided"]
    assert {each.get("name"): each.get("value") for each in one.iter("property")} == {
        "policy": "release-gate",
        "policy_sha256": "51ab09c77e12" * 5,
    }
    for suite in (root, one, two):
        assert int(suite.get("tests")) == len(list(suite.iter("testcase")))
        assert int(suite.get("failures")) == len(list(suite.iter("failure")))


@pytest.mark.parametrize("text", HOSTILE)
def test_names_are_text_in_junit(text):
    content = junit([judged(text)])
    root = ElementTree.fromstring(content)
    assert [element.tag for element in root.iter()].count("testcase") == 2
    assert len(list(root.iter("failure"))) == 1
    lines = content.decode().splitlines()
    assert not any(line.lstrip().startswith("::") for line in lines)
    assert not any("##vso[" in line or "##[" in line or "##teamcity[" in line for line in lines)
    assert not any(sign in content.decode() for sign in "\x1b\u202e\u200f\u2066\x00\x0b\ufffe\uffff")


def test_no_name_becomes_a_formula_in_markdown():
    assert markdown([judged("a $x$ b $$y$$")]).count("$") == markdown([judged("a $x$ b $$y$$")]).count("\\$")


@pytest.mark.parametrize("text", HOSTILE)
def test_names_are_text_in_markdown(text):
    content = markdown([judged(text)])
    tokens = MarkdownIt("commonmark").enable("table").parse(content)
    kinds = [token.type for token in tokens]
    assert kinds.count("table_open") == 1 and kinds.count("tr_open") == 3 and kinds.count("td_open") == 10
    assert kinds.count("heading_open") == 1 and kinds.count("paragraph_open") == 1
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} <= {"text", "text_special"}
    shown = ["".join(child.content for child in token.children or ()) for token in tokens if token.type == "inline"]
    assert not any(word in each for each in shown for word in ("@octocat", "@team", "https://", "http://", "www.", "#12"))
    assert not any(line.lstrip().startswith(("::", "#v", "##[")) or "##vso[" in line for line in content.splitlines())
    assert not any(sign in content for sign in "\x1b\u202e\u200f\u2066\x00")


def test_markdown_shows_what_is_not_met_first():
    content = markdown([Judged(label="one", verdict=verdict(0.97, 0.1))])
    outcomes = [line.split("|")[1].strip() for line in content.splitlines() if line.startswith("| ") and "Outcome" not in line]
    assert outcomes == ["UNDECIDED", "FAIL", "PASS"]
    assert content.startswith("### one: FAIL\n")
    assert "≥ 0\\.106 \\(largest class share\\)" in content
