"""The classifier over a torch module: scores, gradients and inner layers, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from audit.errors import MissingCapability, ModelError
from audit.models import RowLoss
from audit.models.blocks import map_blocks, score_blocks
from audit.models.derivatives import directional
from audit.models.device import exact
from audit.models.input_spec import InputSpec
from audit.models.neurons import Layers
from audit.models.scores import check_finite, check_scores, scores_of
from audit.models.shapes import check_images
from audit.result import ModelIdentity
from audit.text import printable
from audit.vocabulary import Capability

_INTEGER_INPUT = "the model takes 8-bit integers, and rounding has no useful gradient"


class TorchClassifier:
    """A torch model behind the `Classifier` contract; `audit.models.torch_module.wrap` builds it.

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
        layers: Layers | str,
    ) -> None:
        """`layers` is how inner layers are read, or why they cannot be."""
        self._network = network
        self._identity = identity
        self._spec = spec
        self._device = device
        self._block_rows = block_rows
        self._output = output
        self._no_gradients = no_gradients
        self._layers = layers
        self._forward_passes = 0
        self._backward_passes = 0

    @property
    def identity(self) -> ModelIdentity:
        """What was loaded."""
        return self._identity

    @property
    def network(self) -> Callable[[torch.Tensor], object]:
        """What makes scores of prepared images."""
        return self._network

    @property
    def spec(self) -> InputSpec:
        """How images are prepared."""
        return self._spec

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """Gradients where it takes integers, or cuts its outputs off from its input; activations where no layer can be read."""
        reason = self._no_gradients if self._spec.differentiable else _INTEGER_INPUT
        gradients = {} if reason is None else {Capability.GRADIENTS: reason}
        return {Capability.ACTIVATIONS: self._layers, **gradients} if isinstance(self._layers, str) else gradients

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
            x = block.requires_grad_(True)
            scores = self._forward(x.clone())  # a model may change its input in place
            values = loss(scores, rows)
            (gradient,) = torch.autograd.grad(values.sum(), x)
            return scores.detach(), values.detach(), gradient

        with torch.enable_grad(), exact():
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
            x = block.requires_grad_(True)
            scores = self._forward(x.clone())  # a model may change its input in place
            # Rows do not influence each other, so the gradient of a column's sum holds every row's own gradient.
            columns = [
                torch.autograd.grad(scores[:, k].sum(), x, retain_graph=k + 1 < scores.shape[1])[0].flatten(1)
                for k in range(scores.shape[1])
            ]
            return scores.detach(), torch.stack(columns, dim=1)

        with torch.enable_grad(), exact():
            scores, jacobian = map_blocks(images.detach(), self._block_rows, run)
        check_finite(scores, self._identity.label)
        check_finite(jacobian.flatten(1), f"{self._identity.label}, Jacobian")
        self._forward_passes += len(images)
        self._backward_passes += len(images) * self.classes
        return scores, jacobian

    def jvp(self, images: torch.Tensor, directions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, K) and their derivatives (n, K) along `directions` (n, c, h, w); counts as one pass each way.

        Raises:
            MissingCapability: the model takes integers.
            ModelError: wrong shape, or outputs or derivatives that are not finite.
        """
        self._need_gradients(images)
        if not len(images):
            return images.new_zeros(0, self.classes), images.new_zeros(0, self.classes)

        def run(block: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with exact():
                # A model may change its input in place.
                return directional(lambda x: self._forward(x.clone()), block, directions[rows])

        scores, slopes = map_blocks(images.detach(), self._block_rows, run)
        check_finite(scores, self._identity.label)
        check_finite(slopes, f"{self._identity.label}, derivative along a direction")
        self._forward_passes += len(images)
        self._backward_passes += len(images)
        return scores, slopes

    def activations(self, images: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Neurons (n, units) of each layer, in the order in which the layers run; see `audit.models.neurons`.

        Raises:
            MissingCapability: no layer can be read.
            ModelError: wrong shape, values that are not finite, or a layer that did not run.
        """
        if isinstance(self._layers, str):
            raise MissingCapability(self._layers)
        check_images(images, self._identity)
        units, read = self._layers.units, self._layers.read
        if not len(images):
            return {name: images.new_zeros(0, count) for name, count in units.items()}

        def run(block: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = read(self._spec.prepare(block))
            if missing := [name for name, count in units.items() if name not in found or found[name].shape[1] != count]:
                raise ModelError(f"{self._identity.label}: its layer {printable(missing[0], 60)} does not run on every image")
            return tuple(found[name] for name in units)

        with torch.no_grad(), exact():
            values = dict(zip(units, map_blocks(images.detach(), self._block_rows, run), strict=True))
        for name, found in values.items():
            check_finite(found, f"{self._identity.label}, layer {printable(name, 60)}")
        self._forward_passes += len(images)
        return values

    def _need_gradients(self, images: torch.Tensor) -> None:
        if Capability.GRADIENTS in self.lacks:
            raise MissingCapability(self.lacks[Capability.GRADIENTS])
        check_images(images, self._identity)

    def _forward(self, block: torch.Tensor) -> torch.Tensor:
        scores, _ = scores_of(self._network(self._spec.prepare(block)), self._identity.label, self._output)
        return check_scores(scores, len(block), self._identity.label).to(torch.float32)
