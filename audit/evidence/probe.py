"""The evidence behind the honesty checks: attacks on a few examples, each as if the others had not been run.

Inside the cascade an attack sees only what the ones before left standing, so nothing there could show that a stronger attack or a
larger budget breaks less.
"""

from __future__ import annotations

from dataclasses import dataclass

from audit.evidence.arrays import Bools, Floats, Ints
from audit.vocabulary import Threat


@dataclass(frozen=True, kw_only=True)
class ProbeSample:
    """A fit: `positions` (m,) in the sample of the first clean-correct examples, which the probe attacks."""

    positions: Ints

    @property
    def relied_on(self) -> object:
        """What evidence that needs this fit depends on."""
        return self.positions.tolist()


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One attack at several budgets, and random noise. Columns (n,) are False where `probed` is.

    `by_epsilon` (n, E): broken by `attack` at each of `epsilons`, ascending, among them the threat's own; the last is so large
    that its ball around any image holds the grey image. `noise` draws at the threat's own epsilon.
    """

    threat: Threat
    attack: str
    epsilons: tuple[float, ...]
    probed: Bools
    by_epsilon: Bools
    noise: Bools
    forward_passes: Ints
    backward_passes: Ints

    @property
    def broken(self) -> Bools:
        """Broken by `attack` at the threat's own epsilon, (n,)."""
        return self.by_epsilon[:, self.epsilons.index(self.threat.epsilon)]


@dataclass(frozen=True, kw_only=True)
class GradientProbe:
    """Gradient attacks at the threat's own epsilon, and what gradients promise. Columns (n,) are False or 0 where `probed` is.

    Broken by: `single_step` FGSM; `doubled` the probe's attack with twice the iterations from the same start; `restarted` the
    same attack from another start; `queried` Square with so many `queries` (0 where it is not defined for the norm) on the
    examples that are `standing` after all of these. `unconfirmed`: broken by one of them, but not when the same image is asked
    again.

    Of the margin's gradient at the clean image: `zero_gradient` and, where it is zero, `moves`: the margin changes all the same.
    `promise_kept` (n, S): change of the margin between the points that lie `step_sizes` (multiples of epsilon) along and against
    the gradient, as a multiple of what the gradient promises; 0 where it promises nothing. `step_gain` is what one step of epsilon
    along the gradient adds to the margin, `random_gain` the most that a few steps of epsilon in random directions add.
    """

    threat: Threat
    step_sizes: tuple[float, ...]
    queries: int
    probed: Bools
    single_step: Bools
    doubled: Bools
    restarted: Bools
    standing: Bools
    queried: Bools
    unconfirmed: Bools
    zero_gradient: Bools
    moves: Bools
    promise_kept: Floats
    step_gain: Floats
    random_gain: Floats
    forward_passes: Ints
    backward_passes: Ints


@dataclass(frozen=True, kw_only=True)
class GradientHealth:
    """A fit: whether gradients lead attacks at this threat, and the reasons in words why not."""

    threat: Threat
    examples: int
    believed: bool
    reasons: tuple[str, ...]

    @property
    def relied_on(self) -> object:
        """What evidence that needs this fit depends on."""
        return self.believed
