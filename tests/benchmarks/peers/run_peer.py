"""Measures one attack of one other library on one trained classifier, in an environment where that library is installed.

    python tests/benchmarks/peers/run_peer.py pyautoattack autoattack fashion-cnn linf [--steps N --samples N --seed N --epsilon E]

Only the images that the model classifies correctly are attacked, all in one batch. The model is as its user loads it: its weights
want gradients, which some libraries compute on the way. A candidate counts as broken when a pass of its
own misclassifies it and it lies in [0, 1] and in the ball, up to rounding. Written are, to `peers/` in the cache folder:

| file | content |
|---|---|
| `STEM.json` | library, version, attack, model, norm, epsilon, steps, seed, samples; clean and robust accuracy; seconds of the \
wall and of the processor; forward and backward passes (images); `minimum_norm`; median distance over the attacked images; \
candidates outside the ball; stages |
| `STEM.npz` | indices, labels, clean_correct, broken (N,); distance (N,), inf where nothing was misclassified or the image was \
wrong from the start; adversarial (N, c, h, w) |

`stages` is what pyautoattack says after each of its attacks (shares are of the attacked images), with the passes and seconds
until then.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[1]))
from attack_models import MODELS, cache, load_model, load_sample
from peer_attacks import ATTACKS, DEFAULT_STEPS, MINIMUM_NORM, MODULES, ORDERS, Setting

TOLERANCE = {"linf": 1e-6, "l2": 1e-5, "l1": 1e-4}


class Counted(nn.Module):
    """Passes the model through, counting the images that go forward and the gradients that come back."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.forward_passes, self.backward_passes = model, 0, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.forward_passes += len(x)
        logits = self.model(x.float())  # HopSkipJump of the Adversarial Robustness Toolbox asks in double precision
        if logits.requires_grad:
            logits.register_hook(self._returned)
        return logits

    def _returned(self, gradient: torch.Tensor) -> None:
        self.backward_passes += len(gradient)


class Stages(logging.Handler):
    """Keeps what AutoAttack says after each stage, with the passes and seconds until then."""

    def __init__(self, model: Counted) -> None:
        super().__init__(logging.DEBUG)
        self.model, self.begun, self.said = model, time.perf_counter(), []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        print(text, flush=True)
        if record.levelno >= logging.WARNING or "accuracy after" in text:
            passes = {"forward": self.model.forward_passes, "backward": self.model.backward_passes}
            self.said.append({"text": text, **passes, "seconds": round(time.perf_counter() - self.begun, 2)})


def measure(peer: str, attack: str, name: str, setting: Setting, samples: int) -> tuple[dict[str, object], dict[str, np.ndarray]]:
    """The facts and the arrays that the two files hold."""
    model, drawn = load_model(name), load_sample(MODELS[name].data)
    x, y = torch.from_numpy(drawn.images[:samples]), torch.from_numpy(drawn.labels[:samples])
    with torch.no_grad():
        correct = model(x).argmax(dim=1) == y
    torch.manual_seed(setting.seed)
    np.random.seed(setting.seed)
    counted = Counted(model)
    stages = Stages(counted)
    logger = logging.getLogger("auto-attack")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(stages)
    import_module(MODULES[peer])  # not part of the attack's time
    begun, used = time.perf_counter(), time.process_time()
    found = ATTACKS[peer, attack][0](counted, x[correct].clone(), y[correct].clone(), setting).detach()
    seconds, processor = time.perf_counter() - begun, time.process_time() - used

    adversarial = x.clone()
    adversarial[correct] = found.to(x.dtype)
    with torch.no_grad():
        wrong = (model(adversarial).argmax(dim=1) != y) & correct
    distance = torch.linalg.vector_norm((adversarial - x).flatten(1), ord=setting.order, dim=1)
    inside = (distance <= setting.epsilon + TOLERANCE[setting.norm]) & ((adversarial >= 0) & (adversarial <= 1)).flatten(1).all(
        dim=1
    )
    broken = wrong & inside
    distance = torch.where(wrong, distance, torch.inf)
    facts = {
        "peer": peer,
        "version": version(peer),
        "attack": attack,
        "model": name,
        "norm": setting.norm,
        "epsilon": setting.epsilon,
        "steps": setting.steps,
        "seed": setting.seed,
        "samples": len(y),
        "clean_accuracy": correct.double().mean().item(),
        "robust_accuracy": (correct & ~broken).double().mean().item(),
        "robust": int((correct & ~broken).sum()),
        "seconds": round(seconds, 3),
        "processor_seconds": round(processor, 3),
        "forward": counted.forward_passes,
        "backward": counted.backward_passes,
        "minimum_norm": attack in MINIMUM_NORM or (peer, attack) == ("adv-lib", "fab"),
        "median_distance": float(np.median(distance[correct].numpy())),
        "outside": int((correct & ~inside).sum()),
        "stages": stages.said,
    }
    arrays = {
        "indices": drawn.indices[:samples],
        "labels": drawn.labels[:samples],
        "clean_correct": correct.numpy(),
        "broken": broken.numpy(),
        "distance": distance.numpy(),
        "adversarial": adversarial.numpy(),
    }
    return facts, arrays


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("peer", choices=sorted({peer for peer, _ in ATTACKS}))
    parser.add_argument("attack", choices=sorted({attack for _, attack in ATTACKS}))
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("norm", choices=ORDERS)
    parser.add_argument("--epsilon", type=float, help="default: the one chosen for the model")
    parser.add_argument("--steps", type=int, help="iterations or queries (default: as in peer_attacks.py)")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    peer, attack, name, norm = options.peer, options.attack, options.model, options.norm
    if norm not in ATTACKS.get((peer, attack), (None, ()))[1]:
        parser.error(f"{peer} has no {attack} for {norm}")
    torch.set_num_threads(1)
    epsilon = options.epsilon or MODELS[name].threats[norm]
    steps = options.steps or DEFAULT_STEPS.get(attack, 100)
    setting = Setting(norm=norm, epsilon=epsilon, steps=steps, seed=options.seed)
    facts, arrays = measure(peer, attack, name, setting, options.samples)
    folder = cache() / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{peer}.{attack}.{name}.{norm}-{epsilon:.4g}.k{steps}.s{options.seed}.n{facts['samples']}"
    np.savez_compressed(folder / f"{stem}.npz", **arrays)
    (folder / f"{stem}.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(json.dumps({key: value for key, value in facts.items() if key != "stages"}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
