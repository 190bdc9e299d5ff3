"""Compares neuron coverage with dnn-tip (Weiss & Tonella 2022) on random activations of two layers; raises where they differ.

    python tests/benchmarks/peers/run_coverage.py

Needs an environment with this package and dnn-tip (`pip install --no-deps dnn-tip`, and psutil, scikit-learn, tqdm). Its NBC and
SNAC count a neuron at the very edge of its range too, which random values do not meet; its margins are 0 standard deviations here.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from dnn_tip import neuron_coverage as peer

sys.path.append(str(Path(__file__).parents[2] / "metrics"))
from test_metrics_neurons import METRICS, attacked_of, neurons_of, profile_of, value_of

SEEDS, PROFILED, IMAGES = 20, 60, 4


def main() -> None:
    """Print ours and theirs of the first seed, and the largest difference over all."""
    worst = 0.0
    for seed in range(SEEDS):
        generator = np.random.default_rng(seed)
        profiled, clean = generator.normal(size=(PROFILED, 5)), generator.normal(size=(IMAGES, 5))
        moved = clean + generator.normal(size=clean.shape)
        low, high, none = [profiled.min(axis=0)], [profiled.max(axis=0)], [np.zeros(5)]
        peers = {
            "KMNC": peer.KMNC(low, high, 1000),
            "NBC": peer.NBC(low, high, none, 0.0),
            "SNAC": peer.SNAC(high, none, 0.0),
            "TKNC": peer.TKNC(1),
        }
        profile = profile_of(profiled)
        evidence, attacked = neurons_of(clean, profile), attacked_of(clean, moved, profile)
        for symbol in METRICS:
            for variant, values in (("clean", clean), ("adversarial", moved), ("union", np.concatenate([clean, moved]))):
                _, covered = peers[symbol]([values[:, :3], values[:, 3:]])
                theirs = float(covered.reshape(len(values), -1).any(axis=0).mean())
                ours = value_of(symbol, evidence, attacked, variant, profile)
                worst = max(worst, abs(ours - theirs))
                if seed == 0:
                    sys.stdout.write(f"{symbol:5} {variant:12} {ours:.4f} {theirs:.4f}\n")
    sys.stdout.write(f"dnn-tip {version('dnn-tip')}: largest difference {worst:.1e} over {SEEDS} seeds\n")
    if worst > 1e-12:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
