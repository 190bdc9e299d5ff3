"""What queries alone find is the same whoever answers them: torch, or ONNX Runtime on the exported network."""

from __future__ import annotations

import pytest
import torch
from exported import exported

from audit.fisher.directions import Directions
from audit.fisher.exact import gram
from audit.fisher.queries import MEASURED, estimate
from audit.fisher.spectrum import spectrum
from audit.models import ModelRef, load
from audit.models.torch_module import wrap

# Both answer in float32, and round differently: over the smallest stable step that moves lambda by up to 0.8 % here.
AGREE = 0.02


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            *(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
        ).eval()
    with torch.no_grad():
        network[3].weight.mul_(8)  # outputs that move well above the rounding of float32
    path = exported(network, torch.zeros(2, 1, 6, 6), tmp_path_factory.mktemp("onnx") / "net.onnx", dynamo=False)
    loaded = load(ModelRef.parse(str(path)), image_shape=(1, 6, 6), device="cpu")
    return wrap(network, image_shape=(1, 6, 6), device="cpu"), loaded


@pytest.mark.parametrize(
    ("kind", "directions"), [(Directions.ORTHOGONAL, 12), (Directions.STRATIFIED, 12), (Directions.COORDINATE, 36)]
)
def test_every_kind_of_direction_gives_the_same(both, kind, directions):
    x = torch.rand((1, 6, 6), generator=torch.Generator().manual_seed(5))
    ours, theirs = (estimate(each, x, 0.8, directions, torch.Generator().manual_seed(1), kind) for each in both)
    assert ours.status == theirs.status == MEASURED and ours.queries == theirs.queries
    for name in ("lambda_max", "trace", "lambda_max_raw", "trace_raw", "lower_bound"):
        assert getattr(theirs, name) == pytest.approx(getattr(ours, name), rel=AGREE), name
    # Of few directions the interval follows from their number, or from a jackknife over their answers.
    assert theirs.standard_error == pytest.approx(ours.standard_error, rel=AGREE, abs=1e-6)
    if kind is Directions.COORDINATE:
        logits, jacobian = both[0].jacobian(x[None])
        assert theirs.lambda_max == pytest.approx(spectrum(gram(jacobian), logits.double().numpy(), 0.8)[0][0], rel=0.01)
