"""The attacks of other libraries under one signature; each library is imported only when one of its attacks runs.

Every function takes a model in eval mode, images x (n, c, h, w) in [0, 1] that it classifies correctly, labels y (n,) and a
`Setting`, and returns adversarial candidates of x's shape. What the setting does not name is the library's default, except that
step sizes a library leaves to the user are 2.5 epsilon / steps, and that Carlini and Wagner get nine search steps wherever there is
a search. FAB returns what is inside the ball in pyautoattack and torchattacks, and the nearest examples in adv-lib.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

MODULES = {
    "pyautoattack": "pyautoattack",
    "foolbox": "foolbox",
    "torchattacks": "torchattacks",
    "adversarial-robustness-toolbox": "art.attacks.evasion",
    "adv-lib": "adv_lib.attacks",
    "secml-torch": "secmlt.adv.evasion.pgd",
}
MINIMUM_NORM = ("cw", "deepfool", "fmn", "ddn", "hopskipjump")
DEFAULT_STEPS = {"pgd": 40, "deepfool": 50, "cw": 1000, "square": 5000, "hopskipjump": 20}  # of the others: 100
SEARCH_STEPS = 9  # of Carlini and Wagner
ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The threat, the iterations (of one start, or of one search step) and the seed."""

    norm: str
    epsilon: float
    steps: int
    seed: int

    @property
    def step_size(self) -> float:
        return 2.5 * self.epsilon / self.steps

    @property
    def order(self) -> float:
        return ORDERS[self.norm]


Attack = Callable[[nn.Module, torch.Tensor, torch.Tensor, Setting], torch.Tensor]


def pyautoattack(stage: str | None) -> Attack:
    """One stage with one start, or with None the standard composition of them all."""

    def run(model: nn.Module, x: torch.Tensor, y: torch.Tensor, setting: Setting) -> torch.Tensor:
        from pyautoattack import AutoAttack

        norm = setting.norm.capitalize()
        chosen = {"version": "standard"} if stage is None else {"version": "custom", "attacks": [stage]}
        attack = AutoAttack(model, norm=norm, eps=setting.epsilon, seed=setting.seed, **chosen)
        if stage is not None:
            attack.apgd.n_restarts = attack.fab.n_restarts = 1
            attack.apgd.n_iter = attack.apgd_targeted.n_iter = attack.fab.n_iter = setting.steps
            attack.square.n_queries = setting.steps
            attack.apgd.use_largereps = attack.apgd_targeted.use_largereps = norm == "L1"
        return attack.run_standard_evaluation(x, y, batch_size=len(x))[0]

    return run


def foolbox(name: str) -> Attack:
    def run(model: nn.Module, x: torch.Tensor, y: torch.Tensor, setting: Setting) -> torch.Tensor:
        from foolbox import PyTorchModel, attacks

        prefix = {"linf": "Linf", "l2": "L2", "l1": "L1"}[setting.norm]
        if name == "pgd":
            attack = getattr(attacks, f"{prefix}PGD")(steps=setting.steps)
        elif name == "cw":
            attack = attacks.L2CarliniWagnerAttack(binary_search_steps=SEARCH_STEPS, steps=setting.steps)
        elif name == "deepfool":
            attack = getattr(attacks, f"{prefix}DeepFoolAttack")(steps=setting.steps)
        elif name == "fmn":
            attack = getattr(attacks, {"linf": "LInfFMNAttack"}.get(setting.norm, f"{prefix}FMNAttack"))(steps=setting.steps)
        elif name == "ddn":
            attack = attacks.DDNAttack(steps=setting.steps)
        else:
            attack = attacks.HopSkipJumpAttack(steps=setting.steps, constraint=setting.norm)
        epsilon = None if name in MINIMUM_NORM else setting.epsilon  # None: the nearest example found, wherever it lies
        return attack(PyTorchModel(model, bounds=(0, 1), device="cpu"), x, y, epsilons=epsilon)[1]

    return run


def torchattacks(name: str) -> Attack:
    def run(model: nn.Module, x: torch.Tensor, y: torch.Tensor, setting: Setting) -> torch.Tensor:
        import torchattacks as library

        norm, steps = setting.norm.capitalize(), setting.steps
        common: dict[str, Any] = {"norm": norm, "eps": setting.epsilon, "seed": setting.seed}
        if name == "pgd":
            kind = {"linf": library.PGD, "l2": library.PGDL2}[setting.norm]
            attack = kind(model, eps=setting.epsilon, alpha=setting.step_size, steps=steps)
        elif name in ("apgd-ce", "apgd-dlr"):
            attack = library.APGD(model, steps=steps, loss=name.removeprefix("apgd-"), **common)
        elif name == "apgd-t":
            attack = library.APGDT(model, steps=steps, n_classes=10, **common)
        elif name == "fab":
            attack = library.FAB(model, steps=steps, n_classes=10, **common)
        elif name == "square":
            attack = library.Square(model, n_queries=steps, **common)
        elif name == "cw":
            attack = library.CW(model, steps=steps)
        else:
            attack = library.DeepFool(model, steps=steps)
        return attack(x, y)

    return run


def art(name: str) -> Attack:
    def run(model: nn.Module, x: torch.Tensor, y: torch.Tensor, setting: Setting) -> torch.Tensor:
        from art.attacks import evasion
        from art.estimators.classification import PyTorchClassifier

        classifier = PyTorchClassifier(
            model, nn.CrossEntropyLoss(), tuple(x.shape[1:]), 10, clip_values=(0.0, 1.0), device_type="cpu"
        )
        common: dict[str, Any] = {"max_iter": setting.steps, "batch_size": len(x), "verbose": False}
        ball: dict[str, Any] = {**common, "norm": setting.order, "eps": setting.epsilon}
        if name == "pgd":
            attack = evasion.ProjectedGradientDescent(classifier, eps_step=setting.step_size, num_random_init=1, **ball)
        elif name in ("apgd-ce", "apgd-dlr"):
            loss = {"apgd-ce": "cross_entropy", "apgd-dlr": "difference_logits_ratio"}[name]
            attack = evasion.AutoProjectedGradientDescent(
                classifier, eps_step=2 * setting.epsilon, nb_random_init=1, loss_type=loss, **ball
            )
        elif name == "square":
            attack = evasion.SquareAttack(classifier, **ball)
        elif name == "cw":
            attack = evasion.CarliniL2Method(classifier, binary_search_steps=SEARCH_STEPS, **common)
        elif name == "deepfool":
            attack = evasion.DeepFool(classifier, **common)
        else:
            attack = evasion.HopSkipJump(classifier, norm=setting.order, **common)
        return torch.from_numpy(attack.generate(x.numpy(), np.eye(10, dtype=np.float32)[y.numpy()]))

    return run


def adv_lib(name: str) -> Attack:
    def run(model: nn.Module, x: torch.Tensor, y: torch.Tensor, setting: Setting) -> torch.Tensor:
        from adv_lib import attacks

        steps, order, epsilon = setting.steps, setting.order, setting.epsilon
        if name == "pgd":
            return attacks.pgd_linf(model, x, y, epsilon, steps=steps)
        if name in ("apgd-ce", "apgd-dlr"):
            loss, large = name.removeprefix("apgd-"), setting.norm == "l1"
            return attacks.apgd(model, x, y, epsilon, order, n_iter=steps, loss_function=loss, use_large_reps=large)
        if name == "apgd-t":
            return attacks.apgd_targeted(model, x, y, epsilon, order, n_iter=steps, use_large_reps=setting.norm == "l1")
        if name == "cw":
            return attacks.carlini_wagner_l2(model, x, y, binary_search_steps=SEARCH_STEPS, max_iterations=steps)
        if name == "deepfool":
            return attacks.df(model, x, y, steps=steps, norm=order)
        if name == "fmn":
            return attacks.fmn(model, x, y, order, steps=steps)
        if name == "fab":
            return attacks.fab(model, x, y, order, n_iter=steps)
        return attacks.ddn(model, x, y, steps=steps, levels=None)

    return run


def secml_torch(name: str) -> Attack:
    """The library's own implementations; those it borrows from foolbox and adv-lib run there."""

    def run(model: nn.Module, x: torch.Tensor, y: torch.Tensor, setting: Setting) -> torch.Tensor:
        from secmlt.adv.evasion.ddn import DDN
        from secmlt.adv.evasion.fmn import FMN
        from secmlt.adv.evasion.pgd import PGD
        from secmlt.models.pytorch.base_pytorch_nn import BasePyTorchClassifier
        from torch.utils.data import DataLoader, TensorDataset

        common: dict[str, Any] = {"num_steps": setting.steps, "backend": "native"}
        if name == "pgd":
            attack = PGD(setting.norm, setting.epsilon, step_size=setting.step_size, random_start=True, **common)
        elif name == "fmn":
            attack = FMN(setting.norm, step_size=1.0, **common)
        else:
            attack = DDN(**common)
        ((result, _),) = attack(BasePyTorchClassifier(model), DataLoader(TensorDataset(x, y), batch_size=len(x)))
        return result

    return run


_ANY, _TWO, _L2 = ("linf", "l2", "l1"), ("linf", "l2"), ("l2",)

# (library, attack): how to run it, and the norms it has
ATTACKS: dict[tuple[str, str], tuple[Attack, tuple[str, ...]]] = {
    ("pyautoattack", "autoattack"): (pyautoattack(None), _ANY),
    ("pyautoattack", "apgd-ce"): (pyautoattack("apgd-ce"), _ANY),
    ("pyautoattack", "apgd-dlr"): (pyautoattack("apgd-dlr"), _ANY),
    ("pyautoattack", "apgd-t"): (pyautoattack("apgd-t"), _ANY),
    ("pyautoattack", "fab"): (pyautoattack("fab-t"), _ANY),
    ("pyautoattack", "square"): (pyautoattack("square"), _ANY),
    ("foolbox", "pgd"): (foolbox("pgd"), _ANY),
    ("foolbox", "cw"): (foolbox("cw"), _L2),
    ("foolbox", "deepfool"): (foolbox("deepfool"), _TWO),
    ("foolbox", "fmn"): (foolbox("fmn"), _ANY),
    ("foolbox", "ddn"): (foolbox("ddn"), _L2),
    ("foolbox", "hopskipjump"): (foolbox("hopskipjump"), _TWO),
    ("torchattacks", "pgd"): (torchattacks("pgd"), _TWO),
    ("torchattacks", "apgd-ce"): (torchattacks("apgd-ce"), _TWO),
    ("torchattacks", "apgd-dlr"): (torchattacks("apgd-dlr"), _TWO),
    ("torchattacks", "apgd-t"): (torchattacks("apgd-t"), _TWO),
    ("torchattacks", "fab"): (torchattacks("fab"), _TWO),
    ("torchattacks", "square"): (torchattacks("square"), _TWO),
    ("torchattacks", "cw"): (torchattacks("cw"), _L2),
    ("torchattacks", "deepfool"): (torchattacks("deepfool"), _L2),
    ("adversarial-robustness-toolbox", "pgd"): (art("pgd"), _ANY),
    ("adversarial-robustness-toolbox", "apgd-ce"): (art("apgd-ce"), _ANY),
    ("adversarial-robustness-toolbox", "apgd-dlr"): (art("apgd-dlr"), _ANY),
    ("adversarial-robustness-toolbox", "square"): (art("square"), _TWO),
    ("adversarial-robustness-toolbox", "cw"): (art("cw"), _L2),
    ("adversarial-robustness-toolbox", "deepfool"): (art("deepfool"), _L2),
    ("adversarial-robustness-toolbox", "hopskipjump"): (art("hopskipjump"), _TWO),
    ("adv-lib", "pgd"): (adv_lib("pgd"), ("linf",)),
    ("adv-lib", "apgd-ce"): (adv_lib("apgd-ce"), _ANY),
    ("adv-lib", "apgd-dlr"): (adv_lib("apgd-dlr"), _ANY),
    ("adv-lib", "apgd-t"): (adv_lib("apgd-t"), _ANY),
    ("adv-lib", "cw"): (adv_lib("cw"), _L2),
    ("adv-lib", "deepfool"): (adv_lib("deepfool"), _TWO),
    ("adv-lib", "fmn"): (adv_lib("fmn"), _ANY),
    ("adv-lib", "fab"): (adv_lib("fab"), _ANY),
    ("adv-lib", "ddn"): (adv_lib("ddn"), _L2),
    ("secml-torch", "pgd"): (secml_torch("pgd"), _ANY),
    ("secml-torch", "fmn"): (secml_torch("fmn"), _ANY),
    ("secml-torch", "ddn"): (secml_torch("ddn"), _L2),
}
