"""Trains the classifiers of `attack_models.py` into the cache folder, those that are not there yet.

    python tests/benchmarks/attack_training.py [NAME ...]

FASHION_DATA names the folder of Fashion-MNIST's idx files (by default where dataset-fashion-mnist puts them). On one CPU thread
a model takes between a few seconds and six minutes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from attack_models import MODELS, Recipe, cache, load_sample
from torch import nn
from torch.nn import functional

from audit import data
from audit.data import Dataset
from audit.data.sampling import sample

REFERENCES = {
    "fashion": (f"{os.environ.get('FASHION_DATA', '/usr/share/datasets/fashion-mnist')}", "#train", ""),
    "digits": ("digits", ":train", ":test"),
}
TRAINED_ON, SAMPLED, BATCH_ROWS, ATTACK_STEPS, LEARNING_RATE = 8000, 500, 128, 7, 3e-3


def dataset(name: str, *, training: bool) -> Dataset:
    source, train, test = REFERENCES[name]
    return data.load(source + (train if training else test))


def moved(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epsilon: float) -> torch.Tensor:
    """PGD on the cross-entropy from a uniform start, the model in eval mode."""
    model.eval()
    low, high = (x - epsilon).clamp(min=0), (x + epsilon).clamp(max=1)
    result = low + (high - low) * torch.rand_like(x)
    for _ in range(ATTACK_STEPS):
        result.requires_grad_(True)
        (gradient,) = torch.autograd.grad(functional.cross_entropy(model(result), y), result)
        result = (result.detach() + 2.5 * epsilon / ATTACK_STEPS * gradient.sign()).clamp(low, high)
    model.train()
    return result


def worst_logits(model: nn.Sequential, x: torch.Tensor, y: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Bounds by interval arithmetic (Gowal et al. 2018): the lower one of the true class, the upper ones of the others."""
    low, high = (x - epsilon).clamp(min=0), (x + epsilon).clamp(max=1)
    for layer in model:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            middle, radius = (low + high) / 2, (high - low) / 2
            zero = torch.zeros_like(layer.bias)
            state = {"weight": layer.weight.abs(), "bias": zero}
            middle, radius = layer(middle), torch.func.functional_call(layer, state, (radius,))
            low, high = middle - radius, middle + radius
        else:  # monotone: ReLU, Flatten
            low, high = layer(low), layer(high)
    return torch.where(functional.one_hot(y, 10).bool(), low, high)


def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor, recipe: Recipe, progress: float) -> torch.Tensor:
    """The training loss of one batch; interval bounds grow to full strength during the first half of the training."""
    if recipe.training == "linf":
        x = moved(model, x, y, recipe.strength)
    elif recipe.training == "noise":
        x = x + recipe.strength * torch.randn_like(x)
    clean = functional.cross_entropy(model(x), y)
    if recipe.training != "interval":
        return clean
    reached = min(1.0, 2 * progress)
    worst = functional.cross_entropy(worst_logits(model, x, y, reached * recipe.strength), y)
    return (1 - reached / 2) * clean + reached / 2 * worst


def train(recipe: Recipe, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    torch.manual_seed(0)
    model = recipe.build().train()
    batches = len(x) // BATCH_ROWS
    total = recipe.epochs * batches
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LEARNING_RATE, total_steps=total)
    for step in range(total):
        if step % batches == 0:
            order = torch.randperm(len(x))
        rows = order[step % batches * BATCH_ROWS :][:BATCH_ROWS]
        optimizer.zero_grad()
        torch.autograd.backward(loss(model, x[rows], y[rows], recipe, step / total))
        optimizer.step()
        schedule.step()
    return model.eval()


def write_sample(name: str, folder: Path) -> None:
    test = dataset(name, training=False)
    indices = sample(test, SAMPLED, 0)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        folder / f"{name}.npz", images=test.images(indices), labels=test.labels[indices], indices=indices, ids=test.ids[indices]
    )


def write_model(name: str, folder: Path) -> None:
    recipe = MODELS[name]
    training = dataset(recipe.data, training=True)
    rows = range(min(TRAINED_ON, len(training.labels)))
    begun = time.process_time()
    model = train(recipe, torch.from_numpy(training.images(rows)), torch.from_numpy(training.labels[: len(rows)].astype(np.int64)))
    seconds = time.process_time() - begun
    test, attacked = dataset(recipe.data, training=False), load_sample(recipe.data)
    with torch.inference_mode():
        right = model(torch.from_numpy(test.images(range(len(test.labels))))).argmax(dim=1).numpy() == test.labels
        logits = model(torch.from_numpy(attacked.images)).numpy()
    facts = {
        "accuracy": float(right.mean()),
        "sample_accuracy": float((logits.argmax(axis=1) == attacked.labels).mean()),
        "weights": sum(weight.numel() for weight in model.parameters()),
        "seconds": round(seconds, 1),
    }
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{name}.npz", logits=logits)
    (folder / f"{name}.json").write_text(json.dumps(facts, indent=2) + "\n")
    torch.save(model.state_dict(), folder / f"{name}.pt")
    print(name, facts, flush=True)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for source in REFERENCES:
        if not (cache() / "samples" / f"{source}.npz").exists():
            write_sample(source, cache() / "samples")
    for name in names or MODELS:
        if not (cache() / "models" / f"{name}.pt").exists():
            write_model(name, cache() / "models")


if __name__ == "__main__":
    main(sys.argv[1:])
