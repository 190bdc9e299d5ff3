"""Does a sensitivity that needs no attack rank models as attacks do? Twelve small networks on Fashion-MNIST, four architectures.

    python examples/model_zoo.py                  some 20 minutes of one CPU core; trained models and measurements are kept
    python examples/model_zoo.py --smoke          about a minute: one epoch on few images, good for nothing but trying the script

A VGG, a ResNet, a DenseNet and a ViT are trained in three ways each: on clean images, against PGD within L-infinity 8/255, and with
label smoothing. Of each, robust accuracy is the per-example worst case of the `quick` profile's white-box searches. It is compared
with the Fisher statistics and the linearised margin by Spearman's rank correlation over the models; its interval draws whole
architectures anew, since models of one architecture are not independent. Written: `model-zoo.md`, `model-zoo.svg`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import scipy.stats
import torch
from fashion_mnist import DEBIAN_FOLDER, THREAT, write_stand_in
from torch import nn
from torchvision.models import DenseNet, ResNet, VisionTransformer
from torchvision.models.resnet import BasicBlock

from audit import data
from audit.attacks.cascade import worst_case
from audit.attacks.stages import stages
from audit.data import Chunk, Dataset
from audit.errors import AuditError
from audit.fisher.exact import gram
from audit.fisher.margin import linearised_margins
from audit.fisher.spectrum import spectrum
from audit.fisher.temperature import fit_temperature
from audit.models.torch_module import wrap
from audit.profiles import profile

matplotlib.use("svg")
from matplotlib import pyplot

REGIMES = ("standard", "adversarial", "smoothing")
EPOCHS = dict.fromkeys(REGIMES, 6)
TRAINED_ON, ATTACKED, MEASURED = 10_000, 300, 300
ATTACK_STEPS, LABEL_SMOOTHING, LEARNING_RATE, BATCH = 3, 0.1, 2e-3, 128
# Each statistic with the sign that makes larger more robust, if it says anything.
STATISTICS: dict[str, tuple[str, int]] = {
    "lambda_T": ("median λ at the fitted T (the headline)", -1),
    "lambda_T_p95": ("95th percentile of λ at the fitted T", -1),
    "lambda_raw": ("mean λ of the raw outputs", -1),
    "lambda_raw_median": ("median λ of the raw outputs", -1),
    "trace_T": ("median trace at the fitted T", -1),
    "rank_T": ("median effective rank", -1),
    "margin": ("median linearised margin radius, L∞", 1),
    "margin_share": ("share with a linearised margin above 8/255", 1),
}


def vgg() -> nn.Module:
    """Two blocks of convolutions, then a dense layer."""
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10))


def resnet() -> nn.Module:
    """Torchvision's ResNet with its first two stages, for one channel."""
    network = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)
    network.conv1 = nn.Conv2d(1, 64, 5, stride=2, padding=2, bias=False)
    network.layer3, network.layer4, network.fc = nn.Sequential(), nn.Sequential(), nn.Linear(128, 10)
    return network


def densenet() -> nn.Module:
    """Torchvision's DenseNet with two short blocks, for one channel."""
    network = DenseNet(growth_rate=8, block_config=(3, 3), num_init_features=16, bn_size=2, num_classes=10)
    network.features.conv0 = nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False)
    network.features.pool0 = nn.Identity()
    return network


class OneChannel(nn.Module):
    """Torchvision's ViT, given the one channel three times."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = VisionTransformer(
            image_size=28, patch_size=4, num_layers=2, num_heads=4, hidden_dim=48, mlp_dim=96, num_classes=10
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, 10) of images (n, 1, 28, 28)."""
        return self.inner(x.expand(-1, 3, -1, -1))


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {"VGG": vgg, "ResNet": resnet, "DenseNet": densenet, "ViT": OneChannel}


def train(network: nn.Module, images: torch.Tensor, labels: torch.Tensor, regime: str, epochs: int, seed: int) -> nn.Module:
    """Train in place with Adam and a falling learning rate; returns it in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    steps = epochs * -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=LEARNING_RATE, total_steps=steps)
    smoothing = LABEL_SMOOTHING if regime == "smoothing" else 0.0
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images), generator=generator).split(BATCH):
            batch = images[rows]
            if regime == "adversarial":
                batch = moved(network, batch, labels[rows], generator)
            loss = nn.functional.cross_entropy(network(batch), labels[rows], label_smoothing=smoothing)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return network.eval()


def moved(network: nn.Module, images: torch.Tensor, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """PGD from a random start within the threat (Madry et al. 2018)."""
    low, high = (images - THREAT.epsilon).clamp(min=0), (images + THREAT.epsilon).clamp(max=1)
    found = low + (high - low) * torch.rand(images.shape, generator=generator)
    for _ in range(ATTACK_STEPS):
        found.requires_grad_(True)
        (slope,) = torch.autograd.grad(nn.functional.cross_entropy(network(found), labels), found)
        found = (found.detach() + 2.5 * THREAT.epsilon / ATTACK_STEPS * slope.sign()).clamp(low, high)
    return found


def measure(network: nn.Module, test: Dataset, attacked: int, measured: int) -> dict[str, float]:
    """Clean and robust accuracy on the first `attacked` test images, the statistics on the first `measured`; T from 2,000."""
    shape = test.image_shape
    classifier = wrap(network, image_shape=shape, device="cpu")
    count = min(2000, len(test.labels))
    images, labels = torch.from_numpy(test.images(range(count))), np.asarray(test.labels[:count])
    logits = classifier.logits(images).double().numpy()
    fitted = fit_temperature(logits, labels)
    chunk = Chunk(
        positions=np.arange(attacked),
        ids=np.arange(attacked).astype(np.str_),
        labels=labels[:attacked],
        images=images[:attacked].numpy(),
    )
    arm = stages(profile("quick").white_box(THREAT.norm), 0, classifier.classes)
    worst = worst_case(classifier, chunk, logits[:attacked], THREAT, arm, shown=0)
    grams, margins = [], []
    for start in range(0, measured, 32):
        rows = slice(start, min(start + 32, measured))
        _, jacobian = classifier.jacobian(images[rows])
        grams.append(gram(jacobian))
        margins.append(linearised_margins(logits[rows], jacobian, labels[rows]).linf)
    fisher, margin = np.concatenate(grams), np.concatenate(margins)
    largest, trace, rank = spectrum(fisher, logits[:measured], fitted.value)
    raw, _, _ = spectrum(fisher, logits[:measured], 1.0)
    return {
        "clean": float((logits.argmax(axis=1) == labels).mean()),
        "robust": float(worst.robust.mean()),
        "T": fitted.value,
        "lambda_T": float(np.median(largest)),
        "lambda_T_p95": float(np.quantile(largest, 0.95)),
        "lambda_raw": float(raw.mean()),
        "lambda_raw_median": float(np.median(raw)),
        "trace_T": float(np.median(trace)),
        "rank_T": float(np.median(rank)),
        "margin": float(np.median(margin)),
        "margin_share": float((margin > THREAT.epsilon).mean()),
    }


def correlation(rows: dict[str, dict[str, float]], name: str) -> tuple[float, float, float]:
    """Spearman's correlation of robust accuracy with a statistic, and a 95 % interval over architectures drawn anew.

    With four clusters all draws are listed; those of one architecture alone, or without a rank, are left out.
    """
    sign = STATISTICS[name][1]

    def of(models: list[str]) -> float:
        x, y = [sign * rows[model][name] for model in models], [rows[model]["robust"] for model in models]
        return float(scipy.stats.spearmanr(x, y).statistic) if len(set(x)) > 1 and len(set(y)) > 1 else float("nan")

    clusters = {kind: [f"{kind} {regime}" for regime in REGIMES] for kind in ARCHITECTURES}
    draws = [
        of([model for kind in drawn for model in clusters[kind]])
        for drawn in itertools.product(clusters, repeat=len(clusters))
        if len(set(drawn)) > 1
    ]
    finite = [value for value in draws if np.isfinite(value)] or [float("nan")]
    return of(list(rows)), *(float(np.quantile(finite, share)) for share in (0.025, 0.975))


def table(rows: dict[str, dict[str, float]], data_words: str) -> str:
    """The measurements and correlations in Markdown."""
    lines = [f"Models trained and measured on {data_words}; robust at {THREAT.label}.", ""]
    lines += ["| model | clean | robust | T | λ at T | λ raw, mean | margin L∞ · 255 |", "|---|---|---|---|---|---|---|"]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {row['clean']:.3f} | {row['robust']:.3f} | {row['T']:.2f} | {row['lambda_T']:.3g} | "
            f"{row['lambda_raw']:.3g} | {255 * row['margin']:.2f} |"
        )
    lines += ["", "| statistic | Spearman with robust accuracy | 95 % over architectures |", "|---|---|---|"]
    for name, (words, _) in STATISTICS.items():
        value, low, high = correlation(rows, name)
        lines.append(f"| {words} | {value:+.2f} | {low:+.2f} to {high:+.2f} |")
    return "\n".join([*lines, "", "A correlation of 1 means that the statistic ranks the models as the attacks do."]) + "\n"


def figure(rows: dict[str, dict[str, float]], path: Path) -> None:
    """Robust accuracy against the headline and against the margin."""
    drawing, panels = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")
    marks, colours = dict(zip(ARCHITECTURES, "os^D", strict=True)), dict(zip(REGIMES, ("C0", "C1", "C2"), strict=True))
    for panel, name in zip(panels, ("lambda_T", "margin"), strict=True):
        for kind, regime in itertools.product(ARCHITECTURES, REGIMES):
            row = rows[f"{kind} {regime}"]
            panel.scatter(row[name], row["robust"], marker=marks[kind], color=colours[regime], label=f"{kind}, {regime}")
        panel.set(xlabel=STATISTICS[name][0], ylabel=f"robust accuracy, {THREAT.label}")
    panels[0].set_xscale("log")
    panels[1].legend(fontsize=6)
    drawing.savefig(path)
    pyplot.close(drawing)


def main(arguments: list[str] | None = None) -> int:
    """Train what is not there yet, measure it, and write the table and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DEBIAN_FOLDER, help="folder of the idx files (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("model-zoo"), help="models, measurements, table, figure (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="few images, one epoch; a synthetic stand-in if there are no data")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    folder: Path = options.data
    if options.smoke and not folder.exists():
        folder = options.out / "stand-in"
        write_stand_in(folder, options.seed)
    try:
        trained, test = data.load(f"{folder}#train"), data.load(str(folder))
    except AuditError as error:
        print(f"{error} (apt install dataset-fashion-mnist, or name the folder with --data)", file=sys.stderr)
        return 2
    count = min(300 if options.smoke else TRAINED_ON, len(trained.labels))
    attacked, measured = (20, 20) if options.smoke else (ATTACKED, MEASURED)
    images = torch.from_numpy(trained.images(range(count)))
    labels = torch.from_numpy(np.asarray(trained.labels[:count], dtype=np.int64))
    rows: dict[str, dict[str, float]] = {}
    for place, (kind, regime) in enumerate(itertools.product(ARCHITECTURES, REGIMES)):
        name = f"{kind} {regime}"
        stem = f"{'smoke-' if options.smoke else ''}{kind}-{regime}-{options.seed}"
        weights, record = options.out / f"{stem}.pt", options.out / f"{stem}.json"
        torch.manual_seed(options.seed + place)
        network = ARCHITECTURES[kind]()
        if kind == "ViT":
            nn.init.normal_(network.inner.heads.head.weight, std=0.02)
        if weights.exists():
            network.load_state_dict(torch.load(weights, weights_only=True))
        else:
            train(network, images, labels, regime, 1 if options.smoke else EPOCHS[regime], options.seed)
            torch.save(network.state_dict(), weights)
        if not record.exists():
            record.write_text(json.dumps(measure(network.eval(), test, attacked, measured)), encoding="utf-8")
        rows[name] = json.loads(record.read_text(encoding="utf-8"))
        print(f"{name}: clean {rows[name]['clean']:.3f}, robust {rows[name]['robust']:.3f}", flush=True)
    words = (
        f"{'a synthetic stand-in' if folder != options.data else 'Fashion-MNIST'} ({count} training images, {attacked} attacked)"
    )
    (options.out / "model-zoo.md").write_text(table(rows, words), encoding="utf-8")
    figure(rows, options.out / "model-zoo.svg")
    print(f"\n{table(rows, words)}\nWritten {options.out / 'model-zoo.md'} and {options.out / 'model-zoo.svg'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
