"""Classifiers over torch: ordinary modules and exported programs (pt2). They have gradients and layers to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

import torch

from audit.errors import ModelError
from audit.models import neurons, torch_layers
from audit.models.device import described, exact, torch_device
from audit.models.input_spec import InputSpec
from audit.models.live_layers import live_layers
from audit.models.probe import noise, outputs_before_a_look, probe
from audit.models.scores import refuse_class_numbers, scores_of
from audit.models.shapes import Declared, check_declared, refused
from audit.models.torch_classifier import TorchClassifier
from audit.result import ModelIdentity
from audit.settings import DEFAULT_BLOCK_ROWS
from audit.text import printable

__all__ = ["Serialisation", "TorchClassifier", "in_memory_identity", "plain_scores", "wrap"]


class Serialisation(StrEnum):
    """How the module came here, which decides what may be called on it: a pt2 program refuses `eval()` and a move."""

    MODULE = "module"
    PT2 = "pt2"


_CUT_OFF = "the model's outputs carry no gradient of its input (torch.no_grad, detach or NumPy inside forward)"


def wrap(
    network: torch.nn.Module,
    *,
    image_shape: tuple[int, int, int],
    identity: ModelIdentity | None = None,
    spec: InputSpec | None = None,
    serialisation: Serialisation = Serialisation.MODULE,
    declared: Declared | None = None,
    output: str | None = None,
    device: str = "auto",
    block_rows: int = DEFAULT_BLOCK_ROWS,
) -> TorchClassifier:
    """Make a classifier of a torch module, or of an exported program's module that lies on the right device already.

    Args:
        network: the model; an ordinary module is moved to the device and put into eval mode.
        image_shape: (c, h, w) of the images it will be given.
        identity: what is known of where it came from; the rest is filled in here.
        spec: layout, range, normalisation; the default is plain [0, 1] images.
        serialisation: what `network` is.
        declared: what an exported program says of its input.
        output: the name or position of the output to read; None takes the obvious one.
        device: auto, cpu or cuda.
        block_rows: rows per compute block, unless the program fixes them.

    Raises:
        InputError: the device or the specification does not fit.
        ModelError: the model refuses these images, or its outputs are not one (n, K) tensor.
    """
    spec = spec or InputSpec()
    declared = declared or Declared()
    identity = identity or in_memory_identity(type(network).__name__)
    spec.check_channels(image_shape[0])
    where = torch_device(device)
    if serialisation is Serialisation.MODULE:
        network = network.to(where).eval()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    who = identity.label
    check_declared(declared.shape, spec, image_shape, who)
    rows = declared.rows or block_rows
    cautions: set[str] = set()

    def run(images: torch.Tensor) -> torch.Tensor:
        try:
            with torch.no_grad(), exact():
                outputs = network(spec.prepare(images.to(where).clone()))  # a model may change its input in place
        except ModuleNotFoundError as error:
            raise ModelError(
                f"{who}: running it needs the Python module {error.name!r}, which is not installed; install it"
            ) from error
        except Exception as error:  # a model may raise anything; the reason is passed on in one line
            raise ModelError(refused(who, spec, image_shape, error)) from error
        scores, note = scores_of(outputs, who, output)
        cautions.update(note)
        refuse_class_numbers(scores, len(images), who)
        return scores.float().cpu()

    found = probe(run, image_shape, rows, who)
    identity = replace(
        identity,
        classes=found.classes,
        input_shape=image_shape,
        runtime=f"torch {torch.__version__}",
        device=described(where),
        outputs=outputs_before_a_look(spec, found),
        input_spec=spec.words() | ({} if output is None else {"output": printable(output, 60)}),
        # A layer that is named says more than that calls differ.
        cautions=(*identity.cautions, *sorted(cautions), *(live_layers(network) or found.cautions)),
    )
    images = noise(rows, image_shape).to(where)
    with torch.no_grad(), exact():
        layers = neurons.settle(
            torch_layers.reader(network, exported=serialisation is Serialisation.PT2),
            spec.prepare(images[:1].expand_as(images).clone()),
        )
    return TorchClassifier(
        network,
        identity=identity,
        spec=spec,
        device=where,
        block_rows=rows,
        output=output,
        no_gradients=_no_gradients(lambda x: scores_of(network(x), who, output)[0], spec, images),
        layers=layers,
    )


def plain_scores(
    network: torch.nn.Module, serialisation: Serialisation, device: torch.device, who: str, output: str | None = None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """What the network itself makes of prepared images, as float32 on the CPU, whatever the input specification."""
    if serialisation is Serialisation.MODULE:
        network = network.to(device).eval()

    def run(prepared: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), exact():
            scores, _ = scores_of(network(prepared.to(device)), who, output)
        return scores.float().cpu()

    return run


def _no_gradients(score: Callable[[torch.Tensor], torch.Tensor], spec: InputSpec, images: torch.Tensor) -> str | None:
    if not spec.differentiable:
        return None
    try:
        with torch.enable_grad():
            scores = score(spec.prepare(images.requires_grad_(True).clone()))
    # It runs without gradients, as the probe has shown; what fails with them is told by the stage that needs them.
    except Exception:
        return None
    return None if scores.requires_grad else _CUT_OFF


def in_memory_identity(name: str) -> ModelIdentity:
    """Describe a module that came from no registry and no file."""
    return ModelIdentity(
        reference=name,
        uri=name,
        name=name,
        flavour="torch module",
        digest="",
        classes=0,
        runtime="",
        device="",
        outputs="",
        input_shape=(),
    )
