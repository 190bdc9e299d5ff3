"""The profiles: how much work an audit does, as one table.

`quick` is meant for a CI job, `standard` for a release, `thorough` for a model that must hold. `autoattack` is the published
composition with its parameters (Croce & Hein 2020, arXiv 2003.01690; L1: 2021, arXiv 2103.01208), for whoever has to quote it; its
searches are those of this project. The searches of an arm run in this order, each on the survivors of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from audit.errors import InputError
from audit.searches import ESCALATION as ESCALATION
from audit.searches import NEAREST as NEAREST
from audit.searches import NOISE as NOISE
from audit.searches import OUTSIDE as OUTSIDE
from audit.searches import (
    QUICK_L1,
    QUICK_L2,
    QUICK_LINF,
    STANDARD_L1,
    STANDARD_L2,
    STANDARD_LINF,
    THOROUGH_L1,
    THOROUGH_L2,
    THOROUGH_LINF,
    autoattack,
    queries,
    walk,
)
from audit.searches import TRANSFER as TRANSFER
from audit.searches import Search as Search
from audit.vocabulary import Norm


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One row of the table.

    `linf`, `l2` and `l1` are the white-box arm per norm; `score_based` and `label_only` the black-box arm by what a model answers.
    `curve` are multiples of the threat's epsilon, each attacked by the first `curve_stages` searches of the white-box arm, or by
    Square or HopSkipJump with `curve_queries`; `fisher_samples` examples enter the Fisher evidence, with `fisher_directions` query
    directions each, `corruption_samples` are corrupted in every way and `sequence_samples` followed along sequences. Transfer runs
    where a surrogate is given; its steps are gradient steps there. `apart` is how many images are set apart for what may not be
    learned from those that are scored: the ranges of neurons.

    What takes thousands of questions for each example is asked of the first of the sample only: random directions are followed from
    `boundary_samples` (where clean-correct; up to 4,600 questions each), and `certified_samples` are certified (1,100 each).
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
    curve_stages: int
    curve_queries: int
    fisher_samples: int
    fisher_directions: int
    apart: int
    boundary_samples: int
    certified_samples: int
    corruption_samples: int
    sequence_samples: int

    def white_box(self, norm: Norm) -> tuple[Search, ...]:
        """The white-box arm of a norm."""
        return {Norm.LINF: self.linf, Norm.L2: self.l2, Norm.L1: self.l1}[norm]

    @property
    def nearest(self) -> Search:
        """What a label-only black-box arm begins with: it looks outside the ball too, and what it meets there is the curve."""
        return Search(attack=NEAREST, steps=self.curve_queries)

    @property
    def escalation(self) -> Mapping[Norm, tuple[Search, ...]]:
        """The white-box arm per norm for a model whose gradients are not believed: the same in every profile."""
        return ESCALATION

    def black_box(self, norm: Norm, *, scores: bool) -> tuple[Search, ...]:
        """The black-box arm of a norm, for a model that gives scores or for one that gives labels only."""
        arm = self.score_based if scores else self.label_only
        return tuple(search for search in arm if search.norm in (None, norm))


_THOROUGH = Profile(
    name="thorough",
    samples=1000,
    linf=THOROUGH_LINF,
    l2=THOROUGH_L2,
    l1=THOROUGH_L1,
    score_based=(
        *queries(50, 100, ("Square", 5000), ("N-Attack", 2000), ("NES", 2000), ("SPSA", 2000), ("HopSkipJump", 2000)),
        walk(2000),
    ),
    label_only=(*queries(50, 100, ("HopSkipJump", 10000)), walk(5000)),
    reference_steps=40,
    reference_queries=1000,
    curve=(0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
    curve_stages=6,
    curve_queries=5000,
    fisher_samples=1000,
    fisher_directions=256,
    apart=5000,
    boundary_samples=300,
    certified_samples=500,
    corruption_samples=1000,
    sequence_samples=500,
)
PROFILES = (
    Profile(
        name="quick",
        samples=500,
        linf=QUICK_LINF,
        l2=QUICK_L2,
        l1=QUICK_L1,
        score_based=queries(10, 20, ("Square", 200)),
        label_only=queries(10, 20, ("HopSkipJump", 500)),
        reference_steps=40,
        reference_queries=200,
        curve=(0.25, 0.5, 1.0, 2.0),
        curve_stages=3,
        curve_queries=200,
        fisher_samples=100,
        fisher_directions=64,
        apart=500,
        boundary_samples=25,
        certified_samples=25,
        corruption_samples=100,
        sequence_samples=50,
    ),
    Profile(
        name="standard",
        samples=1000,
        linf=STANDARD_LINF,
        l2=STANDARD_L2,
        l1=STANDARD_L1,
        score_based=(
            *queries(20, 40, ("Square", 1000)),
            Search(attack="N-Attack", steps=1000, norm=Norm.L2),
            Search(attack="NES", steps=1000, norm=Norm.L1),
        ),
        label_only=queries(20, 40, ("HopSkipJump", 2000)),
        reference_steps=40,
        reference_queries=1000,
        curve=(0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
        curve_stages=6,
        curve_queries=1000,
        fisher_samples=300,
        fisher_directions=128,
        apart=1000,
        boundary_samples=100,
        certified_samples=100,
        corruption_samples=500,
        sequence_samples=200,
    ),
    _THOROUGH,
    replace(
        _THOROUGH,
        name="autoattack",
        linf=autoattack(restarts=1, targets=9, radius=0),
        l2=autoattack(restarts=1, targets=9, radius=0),
        l1=autoattack(restarts=5, targets=5, radius=3),
        curve_stages=2,
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
