"""A Fashion-MNIST network in every form, with every input and output; full audits of a dozen of these models.

The forms, and which of them cannot exist, are those of tests/models/test_models_matrix.py. FASHION_DATA names the folder of idx
files (by default where dataset-fashion-mnist puts them). The network sees 5,000 images once, so its accuracy is a poor one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from model_cells import CELLS, FORMS, Built, Cell, Workshop, exists, refused
from scripted_server import serving

from audit import data
from audit.cli import cli
from audit.cli.demo_models import fit
from audit.data import Dataset
from audit.errors import ModelError
from audit.models import ModelRef, load, resolve_outputs
from audit.result import from_json
from audit.vocabulary import Capability

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from fashion_mnist import DEBIAN_FOLDER, fashion_cnn

FOLDER = os.environ.get("FASHION_DATA", str(DEBIAN_FOLDER))
TRAINED_ON, TESTED_ON, AUDITED_ON = 5000, 500, 40
THREAT = "linf_8-255"


def cell(what: str) -> Cell:
    pixels, layout, outputs = what.split()
    return Cell(range=pixels, layout=layout, outputs=outputs)


# Every form, and every pair of range, layout and outputs.
AUDITED = (
    ("ONNX file", cell("0-1 NCHW logits")),
    ("ONNX file", cell("normalised NHWC probabilities")),
    ("ONNX flavour", cell("0-255 NHWC logits")),
    ("torch pickle", cell("0-255 NHWC probabilities")),
    ("torch export", cell("normalised NHWC logits")),
    ("torch export", cell("0-255 NCHW logits")),
    ("pyfunc", cell("0-1 NHWC labels")),
    ("pyfunc", cell("normalised NCHW probabilities")),
    ("scikit-learn", cell("normalised NCHW labels")),
    ("scoring server", cell("normalised NCHW logits")),
    ("v2 server", cell("0-1 NCHW probabilities")),
    ("function", cell("0-255 NHWC labels")),
)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The forms of the trained network, the test part, and the class that the plain network gives to each of its images."""

    shop: Workshop
    test: Dataset
    predicted: npt.NDArray[np.int64]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    training, test = data.load(f"{FOLDER}#train"), data.load(FOLDER)
    images = training.images(range(TRAINED_ON))
    torch.manual_seed(0)
    network = fit(fashion_cnn(), images, training.labels[:TRAINED_ON], epochs=1, adversarial_threat=None, seed=0, batch_rows=128)
    with torch.inference_mode():
        predicted = network(torch.from_numpy(test.images(range(len(test.labels))))).argmax(1).numpy()
    folder = tmp_path_factory.mktemp("cells")
    sys.path.append(str(folder))
    shop = Workshop(network=network, images=images[:8], folder=folder)
    with serving(shop.respond) as server:
        shop.server = server.url
        yield Bench(shop=shop, test=test, predicted=predicted)


def access(lacks: Mapping[Capability, str]) -> str:
    if Capability.SCORES in lacks:
        return "labels only"
    return "black box" if Capability.GRADIENTS in lacks else "white box"


def test_every_form_predicts_the_same(bench: Bench) -> None:
    """Every cell of every form; a line for each."""
    truth, labels = bench.predicted[:TESTED_ON], bench.test.labels[:TESTED_ON]
    images = torch.from_numpy(bench.test.images(range(TESTED_ON)))
    print(f"\nplain network: accuracy {(truth == labels).mean():.3f} on {TESTED_ON} images")
    wrong, counts = [], {"equal": 0, "refused": 0, "cannot exist": 0}
    for form in FORMS:
        for each in CELLS:
            start = f"{form:15}{each.range:11}{each.layout:5} {each.outputs:14}"
            if not exists(form, each):
                counts["cannot exist"] += 1
                print(f"{start}cannot exist")
                continue
            built = bench.shop.built(form, each)
            begun = time.perf_counter()
            try:
                classifier = load(
                    ModelRef.parse(built.reference),
                    image_shape=bench.test.image_shape,
                    spec=built.input_spec,
                    trust=built.trust,
                    device="cpu",
                    tracking_uri=bench.shop.store,
                    class_names=bench.test.class_names,
                )
            except ModelError as error:
                counts["refused"] += 1
                print(f"{start}refused: {error}")
                if not refused(form, each):
                    wrong.append(start)
                continue
            classifier = resolve_outputs(classifier, images[:32])
            found = classifier.logits(images).argmax(1).numpy()
            equal = bool((found == truth).all())
            counts["equal"] += equal
            if not equal or refused(form, each):
                wrong.append(start)
            print(
                f"{start}accuracy {(found == labels).mean():.3f}, predictions equal: {'yes' if equal else 'NO'}, "
                f"{access(classifier.lacks)}, {time.perf_counter() - begun:.1f} s"
            )
    print(", ".join(f"{count} {what}" for what, count in counts.items()), f"of {len(FORMS) * len(CELLS)}")
    assert not wrong, wrong


def test_quick_audits_agree(bench: Bench, tmp_path: Path) -> None:
    """The same examples, predictions and clean accuracy from every form; a line for each audit."""
    place = {key: row for row, key in enumerate(bench.test.ids)}
    print()
    wrong, clean, examples = [], set(), set()
    for number, (form, each) in enumerate(AUDITED):
        out = tmp_path / str(number)
        begun = time.perf_counter()
        done = CliRunner().invoke(cli, words(bench.shop.built(form, each), bench.shop.store, out))
        assert done.exit_code == 0, done.output
        (model,) = from_json((out / "result.json").read_bytes()).models
        outcomes = {record.key: record.outcome for record in model.metrics}
        table = pq.read_table(out / "examples.parquet").to_pydict()
        examples.add(tuple(table["id"]))
        expected = [bench.predicted[place[key]] for key in table["id"]]
        equal = table["predicted"] == expected
        clean.add(outcomes["clean_accuracy"].value)
        right = np.mean([bench.test.labels[place[key]] == guess for key, guess in zip(table["id"], expected, strict=True)])
        if not equal or outcomes["clean_accuracy"].value != pytest.approx(right):
            wrong.append((form, each))
        white, black = (outcomes[f"adversarial_accuracy_{kind}/{THREAT}"] for kind in ("white_box", "black_box"))
        print(
            f"{form:15}{each.range:11}{each.layout:5} {each.outputs:14}clean {outcomes['clean_accuracy'].value:.3f}, "
            f"predictions equal: {'yes' if equal else 'NO'}, AAW {said(white)}, AAB {said(black)}, "
            f"{time.perf_counter() - begun:.0f} s"
        )
    assert not wrong, wrong
    assert len(clean) == len(examples) == 1


def test_the_audited_dozen_is_what_it_says() -> None:
    assert len(set(AUDITED)) == 12 and {form for form, _ in AUDITED} == set(FORMS)
    for one, other in combinations(("range", "layout", "outputs"), 2):
        pairs = [{(getattr(each, one), getattr(each, other)) for each in cells} for cells in (CELLS, [each for _, each in AUDITED])]
        assert pairs[0] == pairs[1]


def said(outcome: object) -> str:
    return f"{outcome.value:.3f}" if outcome.kind == "measured" else outcome.kind.replace("_", " ")  # type: ignore[attr-defined]


def words(built: Built, store: str, out: Path) -> list[str]:
    """What a user types."""
    return [
        *("run", built.reference, "--data", FOLDER, "--samples", str(AUDITED_ON), "--tracking-uri", store),
        *(("--input-spec", built.input_spec) if built.input_spec else ()),
        *(("--trust",) if built.trust else ()),
        *("--no-mlflow", "--quiet", "--out", str(out)),
    ]
