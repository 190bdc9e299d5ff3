"""Gradients for an ONNX file: from its graph as a torch module, once that has proven to be the same function.

Scores always come from ONNX Runtime, which is what is deployed; so does every verdict on an attacked image. The module only says in
which direction to look. It is believed if, on images of the audit, its scores are those of ONNX Runtime up to rounding; if not,
or if the graph has no conversion, the model is audited by queries only and the reason is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from audit.errors import MissingCapability, OutOfMemory
from audit.models import Classifier
from audit.models.composed import ComposedClassifier
from audit.models.onnx_batch import with_any_batch
from audit.models.onnx_file import NO_GRADIENTS, OnnxClassifier
from audit.models.onnx_session import Graph
from audit.models.onnx_torch import OnnxModule, convert
from audit.models.outputs import PROBABILITY_FLOOR, Outputs, ResolvedClassifier
from audit.models.torch_module import TorchClassifier
from audit.result import ModelIdentity
from audit.text import printable
from audit.vocabulary import Capability

# The largest difference of two scores, as a share of the range of all scores. Measured on networks of up to 121 layers: at most
# 2.4e-6, and 3e-3 or more once an epsilon or the kind of GELU differs. Half precision rounds every result by up to 5e-4.
TOLERANCE, HALF_TOLERANCE = 1e-4, 1e-2
# Half-precision probabilities below this have too few digits for their logarithm.
_HALF_FLOOR = 1e-3


def converted(path: Path, graph: Graph) -> OnnxModule | str:
    """The opened graph as a module from its image to its scores, for any number of rows where it was freed; or why it has none."""
    import onnx

    try:
        model = with_any_batch(path, graph.rows) if graph.rows and isinstance(graph.freed, Graph) else onnx.load(str(path))
        return convert(model, image=graph.input_name, output=graph.output_name)
    except MissingCapability as error:
        return f"{NO_GRADIENTS}, and the graph cannot be converted to torch: {error}"
    except Exception as error:  # a file may be broken in any way; it runs, so it can be audited without gradients
        return f"{NO_GRADIENTS}, and the graph cannot be converted to torch: {_in_a_line(error)}"


def with_gradients(loaded: Classifier, resolved: ResolvedClassifier, images: torch.Tensor) -> Classifier:
    """`resolved` with gradients where `loaded` is an ONNX graph whose conversion reproduces it; otherwise with the reason why not.

    Args:
        loaded: as `load` gave it.
        resolved: the same with its outputs settled.
        images: (n, c, h, w) in [0, 1], a few dozen of the audit's own.
    """
    if not isinstance(loaded, OnnxClassifier) or not isinstance(loaded.module, OnnxModule):
        return resolved
    lost = loaded.module.gradients.lost_in
    identity = replace(resolved.identity, gradients_lost_in=lost)

    def refused(because: str, identity: ModelIdentity = resolved.identity) -> Classifier:
        reason = f"{NO_GRADIENTS}, and {because}"
        return ComposedClassifier(resolved, identity=identity, lacks={**resolved.lacks, Capability.GRADIENTS: reason})

    if not loaded.module.gradients.exists:
        return refused(f"every path from image to output passes an operator without a useful gradient: {', '.join(lost)}", identity)
    gradients = _differentiable(loaded, resolved, loaded.module)
    if Capability.GRADIENTS in gradients.lacks:
        return refused(gradients.lacks[Capability.GRADIENTS])
    try:
        difference = _difference(resolved, gradients, images, half=loaded.module.from_half)
    except OutOfMemory:
        raise
    except Exception as error:  # an operator may meet sizes that it cannot work on; the model itself has just answered
        return refused(f"the graph, converted to torch, fails: {_in_a_line(error)}")
    limit = HALF_TOLERANCE if loaded.module.from_half else TOLERANCE
    words = f"by up to {difference:.2g} of the range of its scores on {len(images)} images"
    if not difference <= limit:
        return refused(f"the graph, converted to torch, differs from it {words} (at most {limit:g} is accepted)")
    cautions = identity.cautions
    if lost:
        cautions = (
            *cautions,
            f"Part of what the model computes passes operators without a useful gradient ({', '.join(lost)}): "
            "gradient attacks do not see that part, and may overstate robustness; compare the query-only attacks.",
        )
    identity = replace(
        identity, gradients=f"from the graph, converted to torch; it differs from ONNX Runtime {words}", cautions=cautions
    )
    lacks: Mapping[Capability, str] = {key: why for key, why in resolved.lacks.items() if key is not Capability.GRADIENTS}
    return ComposedClassifier(resolved, identity=identity, lacks=lacks, gradients=gradients)


def _differentiable(loaded: OnnxClassifier, resolved: ResolvedClassifier, module: OnnxModule) -> Classifier:
    """The module as a classifier that returns what `resolved` returns; a final softmax becomes a log-softmax."""
    logarithm = module.in_log_space() if resolved.outputs is Outputs.PROBABILITIES else None
    classifier = TorchClassifier(
        logarithm or module,
        identity=resolved.identity,
        spec=loaded.spec,
        device=torch.device("cpu"),
        block_rows=deployed.block_rows if isinstance(deployed := resolved.inner, OnnxClassifier) else loaded.block_rows,
    )
    if resolved.probabilities and logarithm is None:
        return ResolvedClassifier(classifier, resolved.identity, outputs=resolved.outputs)
    return classifier


def _difference(resolved: ResolvedClassifier, gradients: Classifier, images: torch.Tensor, *, half: bool) -> float:
    """The largest difference of two scores over their range. A class that leads by more than twice that is the same in both."""
    theirs, ours = resolved.logits(images).double(), gradients.logits(images).double()
    if resolved.probabilities:
        floor = math.log(_HALF_FLOOR if half else PROBABILITY_FLOOR)
        theirs, ours = theirs.clamp(min=floor), ours.clamp(min=floor)
    spread = float(theirs.max() - theirs.min())
    largest = float((theirs - ours).abs().max())
    return largest / spread if spread > 0 else math.inf if largest > 0 else 0.0


def _in_a_line(error: Exception) -> str:
    return printable(str(error).strip().split("\n")[0] or type(error).__name__, 200)
