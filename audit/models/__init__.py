"""Classifiers: one contract over torch modules, exported programs, ONNX Runtime, endpoints, functions and pyfunc models.

Images (n, c, h, w) float32 in [0, 1] go in, logits (n, K) come out. Layout, value range and normalisation live INSIDE the
classifier, so epsilon always means [0, 1] pixels. The model is in eval mode. Every call runs in compute blocks of `block_rows`
rows, the last one padded, so that a row's result does not depend on the rows beside it.

The walk: `ModelRef.parse` (no I/O) -> `load` -> `resolve_outputs` on a few dozen images -> a `Classifier` that gives logits.
Importing this package imports neither torch nor mlflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from audit.errors import InputError
from audit.models.limits import NO_LIMITS, QueryLimits
from audit.models.ref import ModelRef
from audit.result import ModelIdentity
from audit.settings import DEFAULT_BLOCK_ROWS
from audit.vocabulary import BLACK_BOX_ASKED, Capability

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

# (logits (b, K), row indices (b,) into the images given) -> one loss value per row (b,); row-wise, no state.
RowLoss: TypeAlias = "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"


class Classifier(Protocol):
    """A loaded model. All tensors live on `device`; returned tensors are detached float32."""

    @property
    def identity(self) -> ModelIdentity:
        """What was loaded."""

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """What it cannot do and why, e.g. {GRADIENTS: "the model takes 8-bit integers, ..."}."""

    @property
    def classes(self) -> int:
        """K, the number of classes."""

    @property
    def device(self) -> torch.device:
        """Where images must live."""

    @property
    def forward_passes(self) -> int:
        """Images pushed through the model so far (padding not counted)."""

    @property
    def backward_passes(self) -> int:
        """Images whose gradients were taken so far (padding not counted; a Jacobian of K rows counts K)."""

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (n, K), or log-probabilities where the model gives probabilities; one-hot rows where it lacks SCORES.

        Raises:
            ModelError: the outputs are not finite, or not (n, K).
        """

    def loss_gradient(self, images: torch.Tensor, loss: RowLoss) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits (n, K), loss (n,) and its gradient with respect to the images (n, c, h, w).

        Raises:
            MissingCapability: the classifier lacks GRADIENTS.
        """

    def jacobian(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, K) and d logits / d images (n, K, c*h*w); call it on few rows at a time.

        Raises:
            MissingCapability: the classifier lacks GRADIENTS.
        """

    def jvp(self, images: torch.Tensor, directions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, K) and their derivatives (n, K) along `directions` (n, c, h, w), one per image.

        Raises:
            MissingCapability: the classifier lacks GRADIENTS.
        """

    def activations(self, images: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Neurons (n, units) of each layer, in the order in which the layers run; `audit.models.neurons` says what one is.

        Raises:
            MissingCapability: the classifier lacks ACTIVATIONS.
            ModelError: values are not finite.
        """


def load(
    ref: ModelRef,
    *,
    image_shape: tuple[int, int, int] | None = None,
    spec: str | None = None,
    output: str | None = None,
    trust: bool = False,
    expect_sha256: str | None = None,
    device: str = "auto",
    block_rows: int = DEFAULT_BLOCK_ROWS,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    class_names: tuple[str, ...] = (),
    limits: QueryLimits = NO_LIMITS,
    black_box: bool = False,
) -> Classifier:
    """Load a model, look at it once, and give it back as a classifier; call `resolve_outputs` next.

    Args:
        ref: what the user typed, parsed.
        image_shape: (c, h, w) of the data; None takes the shape the model declares, where it declares one.
        spec: what the user stated of the input, `layout=NHWC,range=0-255` or the path of a TOML file, which takes the place of
            the sidecar; the version's tags and the graph fill in the rest.
        output: the output that holds the scores, by name (or position in a tuple), where there are several.
        trust: whether code that came with the model may run.
        expect_sha256: what the digest of the model's files must be, in hexadecimal; None takes any.
        device: auto, cpu or cuda; cuda is honoured or refused.
        block_rows: rows per compute block, unless the model fixes its batch size.
        tracking_uri: MLflow's tracking store; None takes MLflow's own setting.
        registry_uri: MLflow's registry; None takes the tracking store's.
        class_names: of the data, for a model that answers with labels and states no names of its own.
        limits: how much an endpoint or a function may be asked.
        black_box: give a classifier that can only be asked, whatever the model could do.

    Raises:
        InputError: the reference, specification, output or device cannot be honoured, or the files are not the expected ones.
        ModelError: the model cannot be loaded, refuses the images, or does not give (n, K) scores.
        UntrustedError: loading would run code, and `trust` is false.
    """
    from audit.models import composed
    from audit.models.loading import load as load_now

    classifier = load_now(
        ref,
        image_shape=image_shape,
        spec=spec,
        output=output,
        trust=trust,
        expect_sha256=expect_sha256,
        device=device,
        block_rows=block_rows,
        tracking_uri=tracking_uri,
        registry_uri=registry_uri,
        class_names=class_names,
        limits=limits,
        gradients=not black_box,
    )
    return composed.black_box(classifier, BLACK_BOX_ASKED) if black_box else classifier


def resolve(ref: ModelRef, *, tracking_uri: str | None = None, registry_uri: str | None = None) -> ModelIdentity:
    """What a reference leads to now: its fixed name and the digests of its files, which are hashed and never loaded.

    Args:
        ref: what the user typed, parsed.
        tracking_uri: MLflow's tracking store; None takes MLflow's own setting.
        registry_uri: MLflow's registry; None takes the tracking store's.

    Raises:
        InputError: there is no such model, or its files cannot be had.
    """
    from tempfile import TemporaryDirectory

    from audit.models import mlflow_registry, onnx_content

    if not ref.has_files:
        raise InputError(f"model {ref.reference} has no files: nothing shows which weights answer now")
    if not ref.is_registry:
        return onnx_content.file_identity(ref.file, ref.reference)
    with TemporaryDirectory(prefix="audit-model-", ignore_cleanup_errors=True) as folder:
        return mlflow_registry.fetch(ref, Path(folder), tracking_uri=tracking_uri, registry_uri=registry_uri).identity


def resolve_outputs(classifier: Classifier, images: torch.Tensor) -> Classifier:
    """Settle once what the outputs are, and whether an ONNX graph that was converted to torch can be believed.

    The classifier given back returns logits, or log p where the model gives probabilities.

    Args:
        classifier: as `load` gave it.
        images: (n, c, h, w) in [0, 1] on the classifier's device, a few dozen real ones.

    Raises:
        ModelError: probabilities were stated, but the outputs are none.
    """
    from audit.models.onnx_gradients import with_inside
    from audit.models.outputs import resolve_outputs as resolve_now

    return with_inside(classifier, resolve_now(classifier, images), images)
