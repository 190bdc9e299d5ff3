"""The architecture bound of an audited model: it holds for the image in [0, 1], and what shows no modules says so."""

import math
from dataclasses import replace

import numpy as np
import pytest
import small_run
import torch
from torch import nn

from audit.evidence import Evidence, EvidenceStore
from audit.models import resolve_outputs
from audit.models.averaged import AveragedClassifier
from audit.models.composed import ComposedClassifier, with_surrogate
from audit.models.input_spec import InputSpec
from audit.models.layouts import stretch
from audit.models.torch_module import Serialisation, wrap

SPECS = {
    "range": ((1, 4, 4), InputSpec(range=(0.0, 255.0), mean=(3.0,), std=(51.0,))),
    "channels": ((3, 4, 4), InputSpec(range=(-1.0, 1.0), std=(0.5, 0.25, 1.0), layout="NHWC", channels="BGR")),
    "repeat": ((1, 4, 4), InputSpec(colour="repeat", mean=(0.4, 0.5, 0.6), std=(0.5, 0.25, 1.0))),
    "luma": ((3, 4, 4), InputSpec(colour="luma", std=(0.5,))),
    "larger": ((1, 4, 5), InputSpec(size=(7, 9))),
    "smaller": ((3, 6, 4), InputSpec(size=(3, 4), std=(0.5,))),
}


@pytest.mark.parametrize("name", SPECS)
def test_preparing_stretches_as_its_matrix_says(name):
    shape, spec = SPECS[name]
    jacobian = torch.autograd.functional.jacobian(lambda x: spec.prepare(x[None]).flatten(), torch.full(shape, 0.5))
    exact = float(torch.linalg.matrix_norm(jacobian.flatten(1), 2))
    assert stretch(spec, shape) == pytest.approx(exact, rel=1e-5)


def bound(classifier, images=None):
    run = replace(small_run.small_run(), classifier=classifier)
    chunk = small_run.sample() if images is None else replace(small_run.sample(), images=images)
    return run.collect(Evidence.ARCHITECTURE_BOUND, chunk, [slice(0, 7), slice(7, 23)], EvidenceStore())


def test_it_bounds_what_the_image_in_the_unit_range_can_do():
    spec = InputSpec(range=(0.0, 255.0), mean=(100.0,), std=(51.0,))
    linear = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).eval()
    found = bound(wrap(linear, image_shape=(1, 8, 8), spec=spec, device="cpu"))
    norm = float(torch.linalg.matrix_norm(linear[1].weight, 2))
    assert found.positions.tolist() == [0] and found.unknown.tolist() == [""]
    assert math.exp(found.log_lipschitz[0]) == pytest.approx(5 * norm, rel=1e-6)
    classifier = small_run.classifier()
    _, jacobian = classifier.jacobian(torch.from_numpy(small_run.sample().images))
    largest = float(torch.linalg.matrix_norm(jacobian, 2).max())
    for behind in (classifier, resolve_outputs(classifier, torch.from_numpy(small_run.sample().images))):
        assert largest <= math.exp(bound(with_surrogate(behind, classifier)).log_lipschitz[0]) < 100 * largest


class Trunk(nn.Module):
    def forward(self, x):
        return x**3


def test_what_has_no_bound_says_why():
    inner, images = small_run.classifier(), torch.from_numpy(small_run.sample().images)
    softmax = wrap(nn.Sequential(small_run.network(), nn.Softmax(dim=1)), image_shape=(1, 8, 8), device="cpu", block_rows=8)
    strange = nn.Sequential(Trunk(), small_run.network()).eval()
    exported = torch.export.export(small_run.network(), (torch.zeros(8, 1, 8, 8),)).module()
    reasons = {
        "probabilities, not logits": resolve_outputs(softmax, images),
        "means over calls": AveragedClassifier(inner, 2),
        "shows no torch modules": ComposedClassifier(inner, identity=inner.identity, lacks={}, inside=softmax),
        r"the module 0 \(.*Trunk\)": wrap(strange, image_shape=(1, 8, 8), device="cpu"),
        "an exported program": wrap(exported, image_shape=(1, 8, 8), serialisation=Serialisation.PT2, device="cpu", block_rows=8),
    }
    for words, classifier in reasons.items():
        found = bound(classifier)
        with pytest.raises(ValueError, match=words):
            raise ValueError(found.unknown[0])
        assert np.isfinite(found.log_lipschitz).all() and found.unknown[0].startswith("no architecture bound: ")
