"""The searches: every stage of every arm, and what the plans of the profiles reach.

The searches of an arm run in this order, each on the survivors of the one before.

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

What asks for scores: after Square-1000, another 1,000 questions broke on two 28x28 networks (standard, adversarially trained; 50
images each) at L2 2 and 2 images by N-Attack, 0 and 3 by Square again or by HopSkipJump, 0 and 2 by NES; at L1 2 and 5 by NES, 4
and 2 by N-Attack, 0 and 2 by HopSkipJump; at Linf one in all, by Square. So `standard` adds N-Attack at L2 and NES, which costs
less time, at L1; `thorough` runs everything. SPSA added nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from audit.vocabulary import Norm

NOISE = "random noise"
OUTSIDE = "outside search"
NEAREST = "nearest error by HopSkipJump"
TRANSFER = "transfer"


@dataclass(frozen=True, kw_only=True)
class Search:
    """One stage of an arm.

    `attack` is a key of `audit.attacks.stages.ATTACKS`; `steps` are gradient steps, draws or queries, as the attack counts.
    `loss` is a key of `audit.attacks.losses.LOSSES`, `start` one of `audit.attacks.starts.STARTS`; `target` k aims at the
    k-th class of `order`, a key of `audit.attacks.targets.ORDERS`, and 0 at none; `radius` is where a search that comes from
    outside the ball starts, in multiples of epsilon. `norm` is the only one the search is made for, where it is not made for all.
    """

    attack: str
    steps: int = 1
    loss: str = ""
    start: str = ""
    target: int = 0
    order: str = "box"
    radius: float = 0
    norm: Norm | None = None

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


def _apgd(loss: str, steps: int, start: str, *, target: int = 0) -> Search:
    return Search(attack="APGD", loss=loss, steps=steps, start=start, target=target)


def _outside(loss: str, steps: int, start: str, radius: float) -> Search:
    return Search(attack=OUTSIDE, loss=loss, steps=steps, start=start, radius=radius)


def queries(draws: int, crafting: int, *stages: tuple[str, int]) -> tuple[Search, ...]:
    """Noise, then transfer, which asks once for each loss, then what asks often."""
    crafted = tuple(Search(attack=TRANSFER, steps=crafting, loss=loss) for loss in ("cross_entropy", "margin"))
    return (Search(attack=NOISE, steps=draws), *crafted, *(Search(attack=attack, steps=queries) for attack, queries in stages))


def walk(queries: int) -> Search:
    """The boundary attack, which knows one norm only."""
    return Search(attack="boundary attack", steps=queries, norm=Norm.L2)


_PMS, _CE, _MARGIN = "scaled_probability_margin", "cross_entropy", "margin"
_MT, _DLRT = "margin_targeted", "dlr_targeted"

QUICK_LINF = (_apgd(_PMS, 20, "uniform"), _apgd(_CE, 20, "blocks"), _apgd(_MT, 20, "blocks", target=1))
STANDARD_LINF = (
    _apgd(_PMS, 20, "uniform"),
    _apgd(_CE, 30, "blocks"),
    *(_apgd(_MT, 30, start, target=target) for target, start in ((1, "blocks"), (2, "stripes"), (3, "blocks"))),
    _apgd(_PMS, 50, "blocks"),
)
THOROUGH_LINF = (
    *STANDARD_LINF,
    *(_apgd(_MARGIN, 50, start) for start in ("blocks", "stripes") * 5),
    *(_apgd(_CE, 50, start) for start in ("blocks", "stripes")),
    *(_apgd(_DLRT, 50, start, target=target) for target, start in ((1, "blocks"), (2, "stripes"), (3, "blocks"))),
)
QUICK_L2 = (_apgd(_PMS, 20, "uniform"), _apgd(_MT, 20, "uniform", target=1), _outside(_MARGIN, 30, "uniform", 8))
STANDARD_L2 = (
    _apgd(_PMS, 20, "uniform"),
    *(_apgd(_MT, 30, start, target=target) for target, start in ((1, "uniform"), (2, "dct3"), (3, "uniform"))),
    _apgd(_CE, 30, "dct3"),
    _outside(_MARGIN, 30, "uniform", 8),
    _outside(_CE, 30, "blocks", 16),
)
THOROUGH_L2 = (
    *STANDARD_L2,
    *(_apgd(_DLRT, 50, start, target=target) for target, start in ((1, "dct3"), (2, "uniform"), (3, "dct3"))),
    *(_apgd(_CE, 50, start) for start in ("uniform", "dct3")),
    _apgd(_PMS, 50, "dct3"),
    *(_outside(_MARGIN, 60, start, radius) for start, radius in (("uniform", 4), ("blocks", 8), ("uniform", 16))),
    *(_outside(_CE, 60, start, radius) for start, radius in (("dct3", 4), ("uniform", 8), ("uniform", 16))),
)
QUICK_L1 = (
    _apgd(_PMS, 20, "uniform"),
    *(_apgd(_MT, 20, "uniform", target=target) for target in (1, 2)),
    _outside(_MARGIN, 40, "uniform", 16),
)
STANDARD_L1 = (
    _apgd(_PMS, 30, "uniform"),
    *(_apgd(_MT, 30, "uniform", target=target) for target in (1, 2, 3, 4, 5)),
    _outside(_MARGIN, 50, "uniform", 16),
    _outside(_CE, 50, "blocks", 32),
)
THOROUGH_L1 = (
    *STANDARD_L1,
    *(_apgd(_DLRT, 50, "uniform", target=target) for target in (1, 2, 3)),
    *(_apgd(_CE, 50, start) for start in ("uniform", "dct3")),
    _apgd(_PMS, 50, "dct3"),
    *(_outside(_MARGIN, 60, start, radius) for start, radius in (("uniform", 4), ("blocks", 8), ("uniform", 32))),
    *(_outside(_PMS, 60, start, radius) for start, radius in (("dct3", 4), ("uniform", 8), ("uniform", 32))),
)


def autoattack(*, restarts: int, targets: int, radius: float) -> tuple[Search, ...]:
    """APGD on cross-entropy, then aimed at classes in the order of their logits on the DLR, then FAB so aimed, then Square."""
    first = Search(attack="APGD", loss=_CE, steps=100, start="uniform", radius=radius)
    aimed = Search(attack="APGD", loss=_DLRT, steps=100, start="uniform", radius=radius, order="logits")
    boundary = Search(attack="FAB", steps=100, order="logits")
    return (
        *(first,) * restarts,
        *(replace(aimed, target=target) for target in range(1, targets + 1)),
        *(replace(boundary, target=target) for target in range(1, 10)),
        Search(attack="Square", steps=5000),
    )


# The white-box arm of a model whose gradients cannot be believed: all that thorough has, and a search that does not follow them.
ESCALATION: Mapping[Norm, tuple[Search, ...]] = {
    norm: (*arm, Search(attack="Square", steps=5000))
    for norm, arm in ((Norm.LINF, THOROUGH_LINF), (Norm.L2, THOROUGH_L2), (Norm.L1, THOROUGH_L1))
}
