"""Threats as users write them, and strings from outside."""

from __future__ import annotations

import pytest

from audit.errors import InputError
from audit.text import printable, redact
from audit.vocabulary import Norm, Threat


@pytest.mark.parametrize(
    ("text", "norm", "epsilon", "key", "label"),
    [
        ("linf:8/255", Norm.LINF, 8 / 255, "linf_8-255", "L∞ 8/255"),
        (" L2:0.5 ", Norm.L2, 0.5, "l2_0.5", "L2 0.5"),
        ("l1:12", Norm.L1, 12.0, "l1_12", "L1 12"),
        ("linf:0", Norm.LINF, 0.0, "linf_0", "L∞ 0"),
    ],
)
def test_threats(text, norm, epsilon, key, label):
    threat = Threat.parse(text)
    assert (threat.norm, threat.epsilon, threat.key, threat.label) == (norm, pytest.approx(epsilon), key, label)


@pytest.mark.parametrize(
    "text", ["8/255", "linf", "linf:8", "linf:2", "linf:1/0", "linf:-0.1", "linf:nan", "l3:1", "linf:1/2/3", ""]
)
def test_what_is_no_threat_is_refused_with_an_example(text):
    with pytest.raises(InputError, match=r"8/255"):
        Threat.parse(text)


def test_other_epsilons_keep_the_unit():
    assert Threat.parse("linf:8/255").at(4 / 255).written == "4/255"
    assert Threat.parse("l2:0.5").at(0.25).key == "l2_0.25"


@pytest.mark.parametrize(
    ("hostile", "safe"),
    [
        ("a\nb", "a b"),
        ("\x1b]0;title\x07x", "x"),
        ("\u202eevil", "evil"),
        ("::error::x", ": :error::x"),
        ("a\x00b", "a b"),
    ],
)
def test_printable(hostile, safe):
    assert printable(hostile) == safe


def test_printable_cuts():
    assert len(printable("x" * 1000, limit=50)) == 50


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://ann:pw@host/path", "pw"),
        ("--tracking-uri https://u:hunter2@h", "hunter2"),
        ("Authorization: Bearer abc.def", "abc.def"),
        ("api_key=12345&x=1", "12345"),
    ],
)
def test_redact(text, secret):
    assert secret not in redact(text)
