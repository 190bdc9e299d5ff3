"""Classifiers over torch: ordinary modules and exported programs (pt2). They have gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum

import torch

from audit.errors import MissingCapability, ModelError
from audit.models import RowLoss
from audit.models.blocks import map_blocks, score_blocks
from audit.models.device import described, exact, torch_device
from audit.models.input_spec import InputSpec
from audit.models.live_layers import live_layers
from audit.models.probe import outputs_before_a_look, probe
from audit.models.scores import check_finite, check_scores, refuse_class_numbers, scores_of
from audit.models.shapes import Declared, check_declared, check_images, refused
from audit.result import ModelIdentity
from audit.settings import DEFAULT_BLOCK_ROWS
from audit.text import printable
from audit.vocabulary import Capability


class Serialisation(StrEnum):
    """How the module came here, which decides what may be called on it: a pt2 program refuses `eval()` and a move."""

    MODULE = "module"
    PT2 = "pt2"


_CUT_OFF = "the model's outputs carry no gradient of its input (torch.no_grad, detach or NumPy inside forward)"
_INTEGER_INPUT = "the model takes 8-bit integers, and rounding has no useful gradient"


class TorchClassifier:
    """A torch model behind the `Classifier` contract; build it with `wrap`.

    Parameters need no gradients, so that nothing accumulates in the model; the graph is kept for the images only.
    """

    def __init__(
        self,
        network: Callable[[torch.Tensor], object],
        *,
        identity: ModelIdentity,
        spec: InputSpec,
        device: torch.device,
        block_rows: int,
        output: str | None = None,
        no_gradients: str | None = None,
    ) -> None:
        self._network = network
        self._identity = identity
        self._spec = spec
        self._device = device
        self._block_rows = block_rows
        self._output = output
        self._no_gradients = no_gradients
        self._forward_passes = 0
        self._backward_passes = 0

    @property
    def identity(self) -> ModelIdentity:
        """What was loaded."""
        return self._identity

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """Activations; gradients too where it takes integers, or cuts its outputs off from its input."""
        reason = self._no_gradients if self._spec.differentiable else _INTEGER_INPUT
        gradients = {} if reason is None else {Capability.GRADIENTS: reason}
        return {Capability.ACTIVATIONS: "reading inner layers is not supported yet", **gradients}

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return self._identity.classes

    @property
    def device(self) -> torch.device:
        """Where images must live."""
        return self._device

    @property
    def forward_passes(self) -> int:
        """Images pushed through the model so far (padding not counted)."""
        return self._forward_passes

    @property
    def backward_passes(self) -> int:
        """Images whose gradients were taken so far (padding not counted; a Jacobian of K rows counts K)."""
        return self._backward_passes

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (n, K) of images (n, c, h, w).

        Raises:
            ModelError: the images have another shape than the model was loaded for, or the outputs are not finite.
        """
        with torch.no_grad(), exact():
            scores = score_blocks(images, self._identity, self._block_rows, self._forward)
        self._forward_passes += len(images)
        return scores

    def loss_gradient(self, images: torch.Tensor, loss: RowLoss) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits (n, K), loss (n,) and its gradient (n, c, h, w).

        Raises:
            MissingCapability: the model takes integers.
            ModelError: wrong shape, or outputs, losses or gradients that are not finite.
        """
        self._need_gradients(images)
        if not len(images):
            return images.new_zeros(0, self.classes), images.new_zeros(0), images.detach().clone()

        def run(block: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with torch.enable_grad(), exact():
                x = block.clone().requires_grad_(True)
                scores = self._forward(x.clone())  # a model may change its input in place
                values = loss(scores, rows)
                (gradient,) = torch.autograd.grad(values.sum(), x)
            return scores.detach(), values.detach(), gradient

        scores, values, gradient = map_blocks(images.detach(), self._block_rows, run)
        check_finite(scores, self._identity.label)
        check_finite(gradient.flatten(1), f"{self._identity.label}, gradient of the loss")
        self._forward_passes += len(images)
        self._backward_passes += len(images)
        return scores, values, gradient

    def jacobian(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, K) and d logits / d images (n, K, c*h*w), by K backward passes per block.

        Raises:
            MissingCapability: the model takes integers.
            ModelError: wrong shape, or outputs that are not finite.
        """
        self._need_gradients(images)
        if not len(images):
            return images.new_zeros(0, self.classes), images.new_zeros(0, self.classes, images[0:].flatten(1).shape[1])

        def run(block: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with torch.enable_grad(), exact():
                x = block.clone().requires_grad_(True)
                scores = self._forward(x.clone())  # a model may change its input in place
                # Rows do not influence each other, so the gradient of a column's sum holds every row's own gradient.
                columns = [
                    torch.autograd.grad(scores[:, k].sum(), x, retain_graph=k + 1 < scores.shape[1])[0].flatten(1)
                    for k in range(scores.shape[1])
                ]
            return scores.detach(), torch.stack(columns, dim=1)

        scores, jacobian = map_blocks(images.detach(), self._block_rows, run)
        check_finite(scores, self._identity.label)
        check_finite(jacobian.flatten(1), f"{self._identity.label}, Jacobian")
        self._forward_passes += len(images)
        self._backward_passes += len(images) * self.classes
        return scores, jacobian

    def _need_gradients(self, images: torch.Tensor) -> None:
        if Capability.GRADIENTS in self.lacks:
            raise MissingCapability(self.lacks[Capability.GRADIENTS])
        check_images(images, self._identity)

    def _forward(self, block: torch.Tensor) -> torch.Tensor:
        scores, _ = scores_of(self._network(self._spec.prepare(block)), self._identity.label, self._output)
        return check_scores(scores, len(block), self._identity.label).to(torch.float32)


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
    images = torch.rand(rows, *image_shape, generator=torch.Generator().manual_seed(0)).to(where)
    return TorchClassifier(
        network,
        identity=identity,
        spec=spec,
        device=where,
        block_rows=rows,
        output=output,
        no_gradients=_no_gradients(lambda x: scores_of(network(x), who, output)[0], spec, images),
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
