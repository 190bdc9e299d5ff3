"""The profiles: how much work an audit does, as one table.

`quick` is meant for a CI job, `standard` for a release, `thorough` for a model that must hold. The searches of an arm run in this
order, each on the survivors of the one before.

What asks for scores: after Square-1000, another 1,000 questions broke on two 28x28 networks (standard, adversarially trained; 50
images each) at L2 2 and 2 images by N-Attack, 0 and 3 by Square again or by HopSkipJump, 0 and 2 by NES; at L1 2 and 5 by NES, 4
and 2 by N-Attack, 0 and 2 by HopSkipJump; at Linf one in all, by Square. So `standard` adds N-Attack at L2 and NES, which costs
less time, at L1; `thorough` runs everything. SPSA added nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from audit.errors import InputError
from audit.vocabulary import Norm

NOISE = "random noise"
TRANSFER = "transfer"


@dataclass(frozen=True, kw_only=True)
class Search:
    """One stage of an arm.

    `attack` is a key of `audit.attacks.stages.ATTACKS`; `steps` are gradient steps, draws or queries, as the attack counts.
    `loss` is a key of `audit.attacks.losses.LOSSES`, `start` one of `audit.attacks.starts`; `target` k aims at the k-th most
    promising class and 0 at none; `radius` is where a search from outside the ball starts, in multiples of epsilon. `norm` is the
    only one the search is made for, where it is not made for all.
    """

    attack: str
    steps: int = 1
    loss: str = ""
    start: str = ""
    target: int = 0
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


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One row of the table.

    `linf`, `l2` and `l1` are the white-box arm per norm; `score_based` and `label_only` the black-box arm by what a model answers.
    `curve` are multiples of the threat's epsilon; `fisher_samples` examples enter the Fisher evidence, with `fisher_directions`
    query directions each. Transfer runs where a surrogate is given; its steps are gradient steps there.
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

    def black_box(self, norm: Norm, *, scores: bool) -> tuple[Search, ...]:
        """The black-box arm of a norm, for a model that gives scores or for one that gives labels only."""
        arm = self.score_based if scores else self.label_only
        return tuple(search for search in arm if search.norm in (None, norm))


def _pgd(*stages: tuple[str, int]) -> tuple[Search, ...]:
    return (Search(attack="FGSM"), *(Search(attack="PGD", loss=loss, steps=steps) for loss, steps in stages))


def _queries(draws: int, crafting: int, *stages: tuple[str, int]) -> tuple[Search, ...]:
    """Noise, then transfer, which asks once for each loss, then what asks often."""
    crafted = tuple(Search(attack=TRANSFER, steps=crafting, loss=loss) for loss in ("cross_entropy", "margin"))
    return (Search(attack=NOISE, steps=draws), *crafted, *(Search(attack=attack, steps=queries) for attack, queries in stages))


def _walk(queries: int) -> Search:
    """The boundary attack, which knows one norm only."""
    return Search(attack="boundary attack", steps=queries, norm=Norm.L2)


_QUICK = _pgd(("cross_entropy", 20), ("margin", 20))
_STANDARD = _pgd(("cross_entropy", 50), ("margin", 50), ("margin", 50))
_THOROUGH = _pgd(("cross_entropy", 100), *(("margin", 100),) * 5)

PROFILES = (
    Profile(
        name="quick",
        samples=500,
        linf=_QUICK,
        l2=_QUICK,
        l1=_QUICK,
        score_based=_queries(10, 20, ("Square", 200)),
        label_only=_queries(10, 20, ("HopSkipJump", 500)),
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
        linf=_STANDARD,
        l2=_STANDARD,
        l1=_STANDARD,
        score_based=(
            *_queries(20, 40, ("Square", 1000)),
            Search(attack="N-Attack", steps=1000, norm=Norm.L2),
            Search(attack="NES", steps=1000, norm=Norm.L1),
        ),
        label_only=_queries(20, 40, ("HopSkipJump", 2000)),
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
        linf=_THOROUGH,
        l2=_THOROUGH,
        l1=_THOROUGH,
        score_based=(
            *_queries(50, 100, ("Square", 5000), ("N-Attack", 2000), ("NES", 2000), ("SPSA", 2000), ("HopSkipJump", 2000)),
            _walk(2000),
        ),
        label_only=(*_queries(50, 100, ("HopSkipJump", 10000)), _walk(5000)),
        reference_steps=40,
        reference_queries=1000,
        curve=(0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
        curve_steps=100,
        curve_queries=5000,
        fisher_samples=1000,
        fisher_directions=256,
    ),
)


def profile(name: str) -> Profile:
    """The profile called `name`.

    Raises:
        InputError: there is none.
    """
    for row in PROFILES:
        if row.name == name:
            return row
    raise InputError(f"there is no profile {name!r}; choose one of {', '.join(row.name for row in PROFILES)}")
