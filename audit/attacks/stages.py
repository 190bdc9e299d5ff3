"""From the profile's table to attacks that run: each search of an arm becomes a stage with random draws of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch

from audit.attacks.apgd import apgd
from audit.attacks.boundary import boundary_attack
from audit.attacks.cw import cw
from audit.attacks.ddn import ddn
from audit.attacks.deepfool import deepfool
from audit.attacks.fab import fab
from audit.attacks.fgsm import fgsm
from audit.attacks.fmn import fmn
from audit.attacks.hop_skip_jump import hop_skip_jump
from audit.attacks.mi_fgsm import mi_fgsm
from audit.attacks.minimal import inside, within
from audit.attacks.n_attack import n_attack
from audit.attacks.nes import nes
from audit.attacks.outside import outside
from audit.attacks.pgd import pgd
from audit.attacks.random_noise import random_noise
from audit.attacks.run import Batch, Oracle
from audit.attacks.spsa import spsa
from audit.attacks.square import square
from audit.attacks.transfer import transfer
from audit.models import Classifier
from audit.profiles import NOISE, OUTSIDE, TRANSFER, Search
from audit.vocabulary import Threat


class Attack(Protocol):
    """Proposes one image per example, (n, c, h, w)."""

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, /) -> torch.Tensor:
        """Propose."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One attack of an arm, under the name a reader sees; a `target` k aims it at the k-th class in `order`, 0 at none."""

    name: str
    propose: Attack
    target: int = 0
    order: str = "box"


# (search, seed, purpose of its random draws) -> an attack that drops an example at its first misclassified image.
Build = Callable[[Search, int, str], Attack]

ATTACKS: Mapping[str, Build] = {
    "FGSM": lambda search, seed, purpose: fgsm,
    "PGD": lambda search, seed, purpose: partial(
        pgd, loss=search.loss, steps=search.steps, seed=seed, purpose=purpose, stop_early=True
    ),
    "APGD": lambda search, seed, purpose: partial(
        apgd,
        loss=search.loss,
        steps=search.steps,
        start=search.start,
        radius=search.radius,
        seed=seed,
        purpose=purpose,
        stop_early=True,
    ),
    "MI-FGSM": lambda search, seed, purpose: partial(mi_fgsm, loss=search.loss, steps=search.steps, stop_early=True),
    OUTSIDE: lambda search, seed, purpose: partial(
        outside,
        loss=search.loss,
        steps=search.steps,
        start=search.start,
        radius=search.radius,
        seed=seed,
        purpose=purpose,
    ),
    NOISE: lambda search, seed, purpose: partial(random_noise, draws=search.steps, seed=seed, purpose=purpose),
    "Square": lambda search, seed, purpose: partial(square, queries=search.steps, seed=seed, purpose=purpose, stop_early=True),
    "FAB": lambda search, seed, purpose: within(partial(fab, steps=search.steps), aimed=search.target > 0),
    "FMN": lambda search, seed, purpose: within(partial(fmn, steps=search.steps), aimed=search.target > 0),
    "DDN": lambda search, seed, purpose: within(partial(ddn, steps=search.steps), aimed=search.target > 0),
    "C&W": lambda search, seed, purpose: within(partial(cw, steps=search.steps), aimed=search.target > 0),
    "DeepFool": lambda search, seed, purpose: within(partial(deepfool, steps=search.steps), aimed=search.target > 0),
    "NES": lambda search, seed, purpose: partial(nes, queries=search.steps, seed=seed, purpose=purpose, stop_early=True),
    "SPSA": lambda search, seed, purpose: partial(spsa, queries=search.steps, seed=seed, purpose=purpose, stop_early=True),
    "N-Attack": lambda search, seed, purpose: partial(n_attack, queries=search.steps, seed=seed, purpose=purpose, stop_early=True),
    "HopSkipJump": lambda search, seed, purpose: (
        lambda oracle, batch, threat: inside(
            batch,
            hop_skip_jump(oracle, batch, threat.norm, queries=search.steps, seed=seed, purpose=purpose, until=threat.epsilon),
            threat,
        )
    ),
    "boundary attack": lambda search, seed, purpose: (
        lambda oracle, batch, threat: inside(
            batch, boundary_attack(oracle, batch, queries=search.steps, seed=seed, purpose=purpose, until=threat.epsilon), threat
        )
    ),
}


def stages(
    searches: Sequence[Search], seed: int, classes: int, surrogate: Classifier | None = None, purpose: str = "cascade"
) -> tuple[Stage, ...]:
    """The stages of an arm for a model of K `classes`: aims that K - 1 wrong classes do not fill are left out.

    So is transfer where there is no `surrogate`. A search that occurs again gets another name, and with it other random draws.
    """
    found = []
    seen: Counter[str] = Counter()
    for search in searches:
        if search.target >= classes or (search.attack == TRANSFER and surrogate is None):
            continue
        seen[search.name] += 1
        name = search.name if seen[search.name] == 1 else f"{search.name}, run {seen[search.name]}"
        propose: Attack
        if search.attack == TRANSFER and surrogate is not None:
            propose = partial(
                transfer, surrogate=surrogate, loss=search.loss, steps=search.steps, seed=seed, purpose=f"{purpose} {name}"
            )
            name = name.replace(TRANSFER, f"{TRANSFER} from {surrogate.identity.label}: PGD", 1)
        else:
            propose = ATTACKS[search.attack](search, seed, f"{purpose} {name}")
        found.append(Stage(name=name, propose=propose, target=search.target, order=search.order))
    return tuple(found)
