"""Gradients and inner layers of an ONNX file: from its graph as a torch module, once that has proven to be the same function.

Scores always come from ONNX Runtime, which is what is deployed; so does every verdict on an attacked image. The module only says in
which direction to look. It is believed if, on images of the audit, its scores are those of ONNX Runtime up to rounding; if not,
or if the graph has no conversion, the model is audited by queries only and the reason is kept.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from audit.errors import MissingCapability, OutOfMemory
from audit.models import Classifier
from audit.models.composed import ComposedClassifier
from audit.models.neurons import settle
from audit.models.onnx_batch import with_any_batch
from audit.models.onnx_file import OnnxClassifier, lacking
from audit.models.onnx_session import Graph
from audit.models.onnx_torch import OnnxModule, convert
from audit.models.outputs import PROBABILITY_FLOOR, Outputs, ResolvedClassifier
from audit.models.torch_classifier import TorchClassifier
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
        return f"the graph cannot be converted to torch: {error}"
    except Exception as error:  # a file may be broken in any way; it runs, so it can be audited without gradients
        return f"the graph cannot be converted to torch: {_in_a_line(error)}"


def with_inside(loaded: Classifier, resolved: ResolvedClassifier, images: torch.Tensor) -> Classifier:
    """`resolved` with gradients and layers where `loaded` is an ONNX graph whose conversion reproduces it; else with the reasons.

    Args:
        loaded: as `load` gave it.
        resolved: the same with its outputs settled.
        images: (n, c, h, w) in [0, 1], a few dozen of the audit's own.
    """
    if not isinstance(loaded, OnnxClassifier) or not isinstance(loaded.module, OnnxModule):
        return resolved
    module, identity = loaded.module, resolved.identity
    inside = _inside(loaded, resolved, module, images)
    lost, agreement = module.gradients.lost_in, ""
    try:
        agreement = _agreement(resolved, inside, images, half=module.from_half)
        missing = {capability: lacking(why)[capability] for capability, why in inside.lacks.items()}
    except MissingCapability as error:
        missing = lacking(str(error))
    if not module.gradients.exists:
        because = f"every path from image to output passes an operator without a useful gradient: {', '.join(lost)}"
        missing[Capability.GRADIENTS] = lacking(because)[Capability.GRADIENTS]
        identity = replace(identity, gradients_lost_in=lost)
    elif Capability.GRADIENTS not in missing:
        identity = replace(identity, gradients_lost_in=lost, gradients=f"from the graph, converted to torch; {agreement}")
        if lost:
            hidden = (
                f"Part of what the model computes passes operators without a useful gradient ({', '.join(lost)}): "
                "gradient attacks do not see that part, and may overstate robustness; compare the query-only attacks."
            )
            identity = replace(identity, cautions=(*identity.cautions, hidden))
    return ComposedClassifier(resolved, identity=identity, lacks=missing, inside=inside)


def _inside(loaded: OnnxClassifier, resolved: ResolvedClassifier, module: OnnxModule, images: torch.Tensor) -> Classifier:
    """The module as a classifier that returns what `resolved` returns; a final softmax becomes a log-softmax."""
    logarithm = module.in_log_space() if resolved.outputs is Outputs.PROBABILITIES else None
    rows = deployed.block_rows if isinstance(deployed := resolved.inner, OnnxClassifier) else loaded.block_rows
    with torch.no_grad():
        same = loaded.spec.prepare(images[:1].expand(rows, *images.shape[1:]).clone())
    classifier = TorchClassifier(
        logarithm or module,
        identity=resolved.identity,
        spec=loaded.spec,
        device=torch.device("cpu"),
        block_rows=rows,
        layers=settle(module.neurons, same),
    )
    if resolved.probabilities and logarithm is None:
        return ResolvedClassifier(classifier, resolved.identity, outputs=resolved.outputs)
    return classifier


def _agreement(resolved: ResolvedClassifier, inside: Classifier, images: torch.Tensor, *, half: bool) -> str:
    """By how much the converted graph differs from ONNX Runtime, in words.

    Raises:
        MissingCapability: by more than rounding explains, or the converted graph fails.
    """
    try:
        difference = _difference(resolved, inside, images, half=half)
    except OutOfMemory:
        raise
    except Exception as error:  # an operator may meet sizes that it cannot work on; the model itself has just answered
        raise MissingCapability(f"the graph, converted to torch, fails: {_in_a_line(error)}") from error
    limit = HALF_TOLERANCE if half else TOLERANCE
    words = f"by up to {difference:.2g} of the range of its scores on {len(images)} images"
    if not difference <= limit:
        raise MissingCapability(f"the graph, converted to torch, differs from it {words} (at most {limit:g} is accepted)")
    return f"it differs from ONNX Runtime {words}"


def _difference(resolved: ResolvedClassifier, inside: Classifier, images: torch.Tensor, *, half: bool) -> float:
    """The largest difference of two scores over their range. A class that leads by more than twice that is the same in both."""
    theirs, ours = resolved.logits(images).double(), inside.logits(images).double()
    if resolved.probabilities:
        floor = math.log(_HALF_FLOOR if half else PROBABILITY_FLOOR)
        theirs, ours = theirs.clamp(min=floor), ours.clamp(min=floor)
    spread = float(theirs.max() - theirs.min())
    largest = float((theirs - ours).abs().max())
    return largest / spread if spread > 0 else math.inf if largest > 0 else 0.0


def _in_a_line(error: Exception) -> str:
    return printable(str(error).strip().split("\n")[0] or type(error).__name__, 200)
