"""Classifiers over ONNX Runtime. They give scores, and nothing inside; `audit.models.onnx_gradients` adds gradients and layers."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import NoReturn

import torch

from audit.errors import InputError, MissingCapability, ModelError
from audit.models import RowLoss, class_names
from audit.models.blocks import score_blocks
from audit.models.input_spec import InputSpec
from audit.models.onnx_batch import why_not
from audit.models.onnx_session import CUDA, Graph, first_run, open_graph, run
from audit.models.onnx_torch import OnnxModule
from audit.models.probe import outputs_before_a_look, probe
from audit.models.scores import check_scores
from audit.models.shapes import check_declared, refused
from audit.result import ModelIdentity
from audit.settings import DEFAULT_BLOCK_ROWS
from audit.text import printable
from audit.vocabulary import Capability

__all__ = ["Graph", "OnnxClassifier", "freed_if_equal", "open_graph", "run", "wrap"]

_LACKS = {
    Capability.GRADIENTS: "ONNX Runtime has no backward pass",
    Capability.ACTIVATIONS: "ONNX Runtime shows no inner layers",
}
NOT_CONVERTED = "the graph was not converted to torch"

# Libraries add up in another order for another batch, which moves a float32 score by about 1e-6 of the largest.
SAME_SCORES = 1e-5


def lacking(because: str) -> dict[Capability, str]:
    """What the runtime itself cannot do, and why the graph, converted to torch, does not do it either."""
    return {capability: f"{why}, and {because}" for capability, why in _LACKS.items()}


class OnnxClassifier:
    """An ONNX graph behind the `Classifier` contract; build it with `wrap`. Images live on the CPU, wherever the session runs."""

    def __init__(
        self,
        graph: Graph,
        *,
        identity: ModelIdentity,
        spec: InputSpec,
        block_rows: int,
        free_rows: int,
        module: OnnxModule | str = NOT_CONVERTED,
    ) -> None:
        """`free_rows` are the rows per block of the graph once it is freed from its batch.

        `module` is the graph converted to torch, not yet compared, or why there is none.
        """
        self._graph = graph
        self._identity = identity
        self.spec = spec
        self.block_rows = block_rows
        self._free_rows = free_rows
        self.module = module
        self._forward_passes = 0

    @property
    def identity(self) -> ModelIdentity:
        """What was loaded."""
        return self._identity

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """Gradients and activations."""
        compared = "the graph, converted to torch, has not been compared with it yet"
        return lacking(compared if isinstance(self.module, OnnxModule) else self.module)

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return self._identity.classes

    @property
    def device(self) -> torch.device:
        """Where images must live."""
        return torch.device("cpu")

    @property
    def forward_passes(self) -> int:
        """Images pushed through the model so far (padding not counted)."""
        return self._forward_passes

    @property
    def backward_passes(self) -> int:
        """Always 0."""
        return 0

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Scores (n, K) of images (n, c, h, w).

        Raises:
            ModelError: the images have another shape than the model was loaded for, or the outputs are not finite.
        """
        scores = score_blocks(images, self._identity, self.block_rows, self._forward)
        self._forward_passes += len(images)
        return scores

    def loss_gradient(self, images: torch.Tensor, loss: RowLoss) -> NoReturn:
        """Not possible.

        Raises:
            MissingCapability: always.
        """
        raise MissingCapability(self.lacks[Capability.GRADIENTS])

    def jacobian(self, images: torch.Tensor) -> NoReturn:
        """Not possible.

        Raises:
            MissingCapability: always.
        """
        raise MissingCapability(self.lacks[Capability.GRADIENTS])

    def jvp(self, images: torch.Tensor, directions: torch.Tensor) -> NoReturn:
        """Not possible.

        Raises:
            MissingCapability: always.
        """
        raise MissingCapability(self.lacks[Capability.GRADIENTS])

    def activations(self, images: torch.Tensor) -> NoReturn:
        """Not possible.

        Raises:
            MissingCapability: always.
        """
        raise MissingCapability(self.lacks[Capability.ACTIVATIONS])

    def freed(self, images: torch.Tensor) -> OnnxClassifier:
        """See `freed_if_equal`."""
        graph = self._graph.freed
        if graph is None:
            return self
        if isinstance(graph, Graph):
            free = self._with(graph, replace(self._identity, runtime=graph.runtime), self._free_rows)
            because = self._differs(free, images)
            if because is None:
                return free
        else:
            because = graph
        caution = (
            f"The graph takes batches of {self._graph.rows} only, and it cannot be run with larger ones ({because}), so it runs "
            "block by block, which is slower; export it with a dynamic batch."
        )
        identity = replace(self._identity, cautions=(*self._identity.cautions, caution))
        return self._with(replace(self._graph, freed=None), identity, self.block_rows)

    def _with(self, graph: Graph, identity: ModelIdentity, block_rows: int) -> OnnxClassifier:
        other = copy(self)
        other._graph, other._identity, other.block_rows = graph, identity, block_rows
        return other

    def _differs(self, free: OnnxClassifier, images: torch.Tensor) -> str | None:
        """Why `free` is not the same function of an image, whatever images are beside it; None if it is."""
        try:
            expected, found = self.logits(images), free.logits(images)
            # Every image with other ones before and behind it, and at another place of its block.
            order = torch.arange(len(images)).flip(0).roll(1)
            moved = free.logits(images[order])
        except Exception as error:  # ONNX Runtime has its own exceptions without a common base
            return why_not(error)
        worst = _share(found, expected)
        if worst > SAME_SCORES:
            return f"scores differ by {worst:.1g} of the largest"
        worst = _share(moved, found[order])
        return None if worst <= SAME_SCORES else f"an image's scores change by {worst:.1g} of the largest with the images beside it"

    def _forward(self, block: torch.Tensor) -> torch.Tensor:
        return check_scores(run(self._graph, self.spec.prepare(block)), len(block), self._identity.label)


def _share(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference of two scores, as a share of the largest score of the image."""
    return float(((found - expected).abs() / expected.abs().amax(dim=1, keepdim=True).clamp(min=1e-30)).max())


def wrap(
    graph: Graph,
    *,
    image_shape: tuple[int, int, int],
    identity: ModelIdentity,
    spec: InputSpec,
    block_rows: int = DEFAULT_BLOCK_ROWS,
    module: OnnxModule | str = NOT_CONVERTED,
) -> OnnxClassifier:
    """Make a classifier of an open graph; a graph with a fixed batch size is run in blocks of that size.

    Raises:
        InputError: the specification contradicts the graph.
        ModelError: the graph refuses these images, or its outputs are not (n, K).
    """
    who = identity.label
    spec.check_channels(image_shape[0])
    if spec.dtype != graph.dtype:
        raise InputError(f"{who}: the input spec says dtype {spec.dtype}, but the graph takes {graph.dtype}; leave dtype out")
    check_declared(graph.shape, spec, image_shape, who)

    def attempt(images: torch.Tensor) -> torch.Tensor:
        try:
            return first_run(graph, spec.prepare(images))
        except ModelError as error:
            raise ModelError(f"{who}: {error}") from error
        except Exception as error:  # ONNX Runtime has its own exceptions without a common base
            raise ModelError(refused(who, spec, image_shape, error)) from error

    rows = graph.rows or block_rows
    found = probe(attempt, image_shape, rows, who)
    identity = replace(
        identity,
        classes=found.classes,
        input_shape=image_shape,
        runtime=graph.runtime,
        device=f"cuda:0 ({torch.cuda.get_device_name(0)})" if graph.provider == CUDA else "cpu",
        outputs=outputs_before_a_look(spec, found),
        input_spec=spec.words() | ({"output": printable(graph.output.name, 60)} if graph.output.chosen else {}),
        class_names=identity.class_names
        or graph.output.class_names
        or class_names.from_metadata(graph.metadata, found.classes, who),
        cautions=(*identity.cautions, *graph.cautions, *(graph.live or found.cautions)),
    )
    return OnnxClassifier(graph, identity=identity, spec=spec, block_rows=rows, free_rows=block_rows, module=module)


def freed_if_equal(classifier: OnnxClassifier, images: torch.Tensor) -> OnnxClassifier:
    """A graph with a fixed batch, run with any batch where that gives the same scores; otherwise as it is, and why.

    Args:
        classifier: as `wrap` gave it; one without a fixed batch is given back.
        images: (n, c, h, w) in [0, 1], real ones: the two graphs are compared on them.
    """
    return classifier.freed(images)
