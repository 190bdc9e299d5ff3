"""The profiles: how much work an audit does, as one table.

`quick` is meant for a CI job, `standard` for a release, `thorough` for a model that must hold. Attack stages run in this order,
each on the survivors of the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

from audit.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One row of the table.

    `pgd_stages` are (loss, steps) of the white-box arm, after FGSM; `curve` are multiples of the threat's epsilon;
    `fisher_samples` examples enter the Fisher evidence, with `fisher_directions` query directions each.
    """

    name: str
    samples: int
    pgd_stages: tuple[tuple[str, int], ...]
    reference_steps: int
    square_queries: int
    reference_queries: int
    noise_draws: int
    curve: tuple[float, ...]
    curve_steps: int
    fisher_samples: int
    fisher_directions: int


PROFILES = (
    Profile(
        name="quick",
        samples=500,
        pgd_stages=(("cross_entropy", 20), ("margin", 20)),
        reference_steps=40,
        square_queries=200,
        reference_queries=200,
        noise_draws=10,
        curve=(0.25, 0.5, 1.0, 2.0),
        curve_steps=20,
        fisher_samples=100,
        fisher_directions=64,
    ),
    Profile(
        name="standard",
        samples=1000,
        pgd_stages=(("cross_entropy", 50), ("margin", 50), ("margin", 50)),
        reference_steps=40,
        square_queries=1000,
        reference_queries=1000,
        noise_draws=20,
        curve=(0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
        curve_steps=40,
        fisher_samples=300,
        fisher_directions=128,
    ),
    Profile(
        name="thorough",
        samples=1000,
        pgd_stages=(("cross_entropy", 100), *(("margin", 100),) * 5),
        reference_steps=40,
        square_queries=5000,
        reference_queries=1000,
        noise_draws=50,
        curve=(0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
        curve_steps=100,
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
