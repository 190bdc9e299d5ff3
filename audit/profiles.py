"""The profiles: how much work an audit does, as one table.

`quick` is meant for a CI job, `standard` for a release, `thorough` for a model that must hold; the white-box arm of `autoattack`
is the published one, for a number that can be quoted. The searches of an arm run in this order, each on the survivors of the one
before.

The white-box plans, against AutoAttack's standard version (pyautoattack 0.2.0, seed 0), on 28x28 networks. Counts are images left
standing: AutoAttack; quick, standard, thorough. "Only theirs" are images that AutoAttack alone breaks, in the same order; passes
are forward and backward passes as a share of AutoAttack's.

| network, threat, images | left standing | only theirs | passes |
|---|---|---|---|
| CNN, Linf 8/255, 500 | 221; 221, 221, 221 | 0, 0, 0 | .014, .041, .19 |
| CNN adversarially trained, Linf 24/255, 500 | 283; 286, 284, 281 | 3, 1, 0 | .014, .042, .20 |
| CNN trained on interval bounds 0.15, Linf 0.1, 150 | 94; 94, 94, 94 | 0, 0, 0 | .014, .041, .20 |
| CNN trained on interval bounds 0.1, Linf 0.1, 150 | 92; 92, 92, 92 | 0, 0, 0 | .014, .041, .20 |
| ResNet (thorough not run), Linf 4/255, 500 | 211; 213, 211 | 2, 0 | .015, .041 |
| CNN, L2 0.5, 500 | 247; 247, 247, 247 | 0, 0, 0 | .016, .043, .18 |
| CNN trained on interval bounds 0.15, L2 0.8, 150 | 54; 50, 37, 31 | 9, 5, 1 | .020, .052, .13 |
| CNN trained on interval bounds 0.1, L2 0.8, 150 | 69; 54, 52, 46 | 0, 0, 0 | .016, .042, .14 |
| CNN trained on interval bounds 0.15, L1 4, 150 | 12; 19, 8, 4 | 10, 2, 0 | .077, .18, .23 |
| CNN trained on interval bounds 0.1, L1 4, 150 | 21; 23, 19, 18 | 4, 1, 0 | .050, .11, .22 |

Where a search from outside starts (L2 and L1) was chosen on the two interval-trained networks, 100 of these images; nothing was
chosen on the others. There, after one APGD, one search of 30 steps from 2, 4, 8, 16 and 30 epsilon left 53, 42, 37, 38 and 35 of
100 images standing at L2, and 37, 27, 19, 13 and 10 at L1 (bounds 0.15). L1 is the least settled: AutoAttack itself spends little
there, and quick leaves up to seven images more than it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from audit.errors import InputError
from audit.vocabulary import Norm

NOISE = "random noise"
OUTSIDE = "outside search"


@dataclass(frozen=True, kw_only=True)
class Search:
    """One stage of an arm.

    `attack` is a key of `audit.attacks.stages.ATTACKS`; `steps` are gradient steps, draws or queries, as the attack counts.
    `loss` is a key of `audit.attacks.losses.LOSSES`, `start` one of `audit.attacks.starts.STARTS`; `target` k aims at the
    k-th class of `order`, a key of `audit.attacks.targets.ORDERS`, and 0 at none; `radius` is where a search that comes from
    outside the ball starts, in multiples of epsilon.
    """

    attack: str
    steps: int = 1
    loss: str = ""
    start: str = ""
    target: int = 0
    order: str = "box"
    radius: float = 0

    @property
    def name(self) -> str:
        """The stage as a reader sees it.

        >>> Search(attack="PGD", steps=20, loss="cross_entropy").name
        'PGD-20 cross-entropy'
        """
        if self.attack == NOISE:
            return f"{NOISE}, {self.steps} draws"
        parts = [self.attack if self.steps == 1 else f"{self.attack}-{self.steps}", self.loss.replace("_", "-")]
        words = " ".join(part for part in parts if part)
        details = [f"target {self.target}"] * bool(self.target) + [f"from {self.radius:g} epsilon"] * bool(self.radius)
        return ", ".join([words, *details, *([f"{self.start} start"] if self.start else [])])


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One row of the table.

    `linf`, `l2` and `l1` are the white-box arm per norm; `score_based` and `label_only` the black-box arm by what a model answers.
    `curve` are multiples of the threat's epsilon; `fisher_samples` examples enter the Fisher evidence, with `fisher_directions`
    query directions each.
    """

    name: str
    samples: int
    linf: tuple[Search, ...]
    l2: tuple[Search, ...]
    l1: tuple[Search, ...]
    score_based: tuple[Search, ...]
    label_only: tuple[Search, ...]
    reference_steps: int
    reference_queries: int
    curve: tuple[float, ...]
    curve_steps: int
    curve_queries: int
    fisher_samples: int
    fisher_directions: int

    def white_box(self, norm: Norm) -> tuple[Search, ...]:
        """The white-box arm of a norm."""
        return {Norm.LINF: self.linf, Norm.L2: self.l2, Norm.L1: self.l1}[norm]


def _apgd(loss: str, steps: int, start: str, *, target: int = 0) -> Search:
    return Search(attack="APGD", loss=loss, steps=steps, start=start, target=target)


def _outside(loss: str, steps: int, start: str, radius: float) -> Search:
    return Search(attack=OUTSIDE, loss=loss, steps=steps, start=start, radius=radius)


def _queries(draws: int, queries: int) -> tuple[Search, ...]:
    return (Search(attack=NOISE, steps=draws), Search(attack="Square", steps=queries))


_PMS, _CE, _MARGIN = "scaled_probability_margin", "cross_entropy", "margin"
_MT, _DLRT = "margin_targeted", "dlr_targeted"

_QUICK_LINF = (_apgd(_PMS, 20, "uniform"), _apgd(_CE, 20, "blocks"), _apgd(_MT, 20, "blocks", target=1))
_STANDARD_LINF = (
    _apgd(_PMS, 20, "uniform"),
    _apgd(_CE, 30, "blocks"),
    *(_apgd(_MT, 30, start, target=target) for target, start in ((1, "blocks"), (2, "stripes"), (3, "blocks"))),
    _apgd(_PMS, 50, "blocks"),
)
_THOROUGH_LINF = (
    *_STANDARD_LINF,
    *(_apgd(_MARGIN, 50, start) for start in ("blocks", "stripes") * 5),
    *(_apgd(_CE, 50, start) for start in ("blocks", "stripes")),
    *(_apgd(_DLRT, 50, start, target=target) for target, start in ((1, "blocks"), (2, "stripes"), (3, "blocks"))),
)
_QUICK_L2 = (_apgd(_PMS, 20, "uniform"), _apgd(_MT, 20, "uniform", target=1), _outside(_MARGIN, 30, "uniform", 8))
_STANDARD_L2 = (
    _apgd(_PMS, 20, "uniform"),
    *(_apgd(_MT, 30, start, target=target) for target, start in ((1, "uniform"), (2, "dct3"), (3, "uniform"))),
    _apgd(_CE, 30, "dct3"),
    _outside(_MARGIN, 30, "uniform", 8),
    _outside(_CE, 30, "blocks", 16),
)
_THOROUGH_L2 = (
    *_STANDARD_L2,
    *(_apgd(_DLRT, 50, start, target=target) for target, start in ((1, "dct3"), (2, "uniform"), (3, "dct3"))),
    *(_apgd(_CE, 50, start) for start in ("uniform", "dct3")),
    _apgd(_PMS, 50, "dct3"),
    *(_outside(_MARGIN, 60, start, radius) for start, radius in (("uniform", 4), ("blocks", 8), ("uniform", 16))),
    *(_outside(_CE, 60, start, radius) for start, radius in (("dct3", 4), ("uniform", 8), ("uniform", 16))),
)
_QUICK_L1 = (
    _apgd(_PMS, 20, "uniform"),
    *(_apgd(_MT, 20, "uniform", target=target) for target in (1, 2)),
    _outside(_MARGIN, 40, "uniform", 16),
)
_STANDARD_L1 = (
    _apgd(_PMS, 30, "uniform"),
    *(_apgd(_MT, 30, "uniform", target=target) for target in (1, 2, 3, 4, 5)),
    _outside(_MARGIN, 50, "uniform", 16),
    _outside(_CE, 50, "blocks", 32),
)
_THOROUGH_L1 = (
    *_STANDARD_L1,
    *(_apgd(_DLRT, 50, "uniform", target=target) for target in (1, 2, 3)),
    *(_apgd(_CE, 50, start) for start in ("uniform", "dct3")),
    _apgd(_PMS, 50, "dct3"),
    *(_outside(_MARGIN, 60, start, radius) for start, radius in (("uniform", 4), ("blocks", 8), ("uniform", 32))),
    *(_outside(_PMS, 60, start, radius) for start, radius in (("dct3", 4), ("uniform", 8), ("uniform", 32))),
)

# AutoAttack's standard version as published (Croce & Hein 2020; L1: 2021): targets in the order of the clean logits.
_FAB_SQUARE = (
    *(Search(attack="FAB", steps=100, target=target, order="logits") for target in range(1, 10)),
    Search(attack="Square", steps=5000),
)
_AUTOATTACK = (
    _apgd(_CE, 100, "uniform"),
    *(replace(_apgd(_DLRT, 100, "uniform", target=target), order="logits") for target in range(1, 10)),
    *_FAB_SQUARE,
)
_AUTOATTACK_L1 = (
    *(replace(_apgd(_CE, 100, "uniform"), radius=3) for _ in range(5)),
    *(replace(_apgd(_DLRT, 100, "uniform", target=target), order="logits", radius=3) for target in range(1, 6)),
    *_FAB_SQUARE,
)

PROFILES: tuple[Profile, ...] = (
    Profile(
        name="quick",
        samples=500,
        linf=_QUICK_LINF,
        l2=_QUICK_L2,
        l1=_QUICK_L1,
        score_based=_queries(10, 200),
        label_only=(Search(attack=NOISE, steps=10),),
        reference_steps=40,
        reference_queries=200,
        curve=(0.25, 0.5, 1.0, 2.0),
        curve_steps=20,
        curve_queries=200,
        fisher_samples=100,
        fisher_directions=64,
    ),
    Profile(
        name="standard",
        samples=1000,
        linf=_STANDARD_LINF,
        l2=_STANDARD_L2,
        l1=_STANDARD_L1,
        score_based=_queries(20, 1000),
        label_only=(Search(attack=NOISE, steps=20),),
        reference_steps=40,
        reference_queries=1000,
        curve=(0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
        curve_steps=40,
        curve_queries=1000,
        fisher_samples=300,
        fisher_directions=128,
    ),
    Profile(
        name="thorough",
        samples=1000,
        linf=_THOROUGH_LINF,
        l2=_THOROUGH_L2,
        l1=_THOROUGH_L1,
        score_based=_queries(50, 5000),
        label_only=(Search(attack=NOISE, steps=50),),
        reference_steps=40,
        reference_queries=1000,
        curve=(0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
        curve_steps=100,
        curve_queries=5000,
        fisher_samples=1000,
        fisher_directions=256,
    ),
)


# Everything but the white-box arms as in thorough.
PROFILES += (replace(PROFILES[-1], name="autoattack", linf=_AUTOATTACK, l2=_AUTOATTACK, l1=_AUTOATTACK_L1),)

# What is added to a white-box arm whose gradients cannot be believed: everything that thorough has, and a search without them.
ESCALATION: Mapping[Norm, tuple[Search, ...]] = {
    norm: (*arm, Search(attack="Square", steps=5000))
    for norm, arm in ((Norm.LINF, _THOROUGH_LINF), (Norm.L2, _THOROUGH_L2), (Norm.L1, _THOROUGH_L1))
}


def profile(name: str) -> Profile:
    """The profile called `name`.

    Raises:
        InputError: there is none.
    """
    for row in PROFILES:
        if row.name == name:
            return row
    raise InputError(f"there is no profile {name!r}; choose one of {', '.join(row.name for row in PROFILES)}")
