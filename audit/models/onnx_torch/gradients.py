"""Where gradients get lost: a walk from the image to the output past operators that have none of use.

Rounding, signs and steps have a derivative of zero wherever they have one. What passes through them is missing in the gradient,
while an attack that only asks for answers still sees it. A comparison that only chooses between values that have gradients, as a
rectifier written with Where does, hides nothing and is not named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from audit.models.onnx_torch.node import Node, torch_dtype

_STEPS = frozenset(
    (
        *("ArgMax", "ArgMin", "Ceil", "Floor", "NonZero", "QuantizeLinear", "Round", "Sign"),
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    )
)
# Of the image they tell its shape, or whether it holds numbers at all.
_UNRELATED = frozenset(("IsInf", "IsNaN", "Shape", "Size"))


@dataclass(frozen=True, kw_only=True)
class GradientPath:
    """Whether any path from image to output keeps a gradient, and the operators that end one, with how often: `Round (2)`."""

    exists: bool
    lost_in: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Value:
    """How a value depends on the image: `smooth` by a path with a gradient; `steps` are the nodes that ended others."""

    smooth: bool
    steps: frozenset[int] = frozenset()


_FREE = _Value(smooth=False)


def gradient_path(nodes: Iterable[Node], image: str, output: str) -> GradientPath:
    """Walk the `nodes`, in the order they run, from the value `image` to the value `output`."""
    known = {image: _Value(smooth=True)}
    names: dict[int, str] = {}
    for place, node in enumerate(nodes):
        inputs = [known.get(name, _FREE) for name in node.inputs]
        found = _Value(smooth=any(each.smooth for each in inputs), steps=frozenset().union(*(each.steps for each in inputs)))
        if node.op in _UNRELATED:
            continue
        if node.op == "Where" and (inputs[1].smooth or inputs[2].smooth):
            found = _Value(smooth=True, steps=inputs[1].steps | inputs[2].steps)
        step = _Value(smooth=False, steps=found.steps | {place}) if found.smooth else found
        name = _step(node)
        for i, output_name in enumerate(node.outputs):
            ends = name is not None or (node.op == "TopK" and i == 1)
            known[output_name] = step if ends else found
        names[place] = name or f"{node.op} indices"
    reached = known.get(output, _FREE)
    counts = Counter(names[place] for place in reached.steps)
    return GradientPath(
        exists=reached.smooth, lost_in=tuple(f"{name} ({count})" if count > 1 else name for name, count in sorted(counts.items()))
    )


def _step(node: Node) -> str | None:
    """The name of an operator whose result has no useful gradient of its inputs; None for the others."""
    if node.op in _STEPS:
        return node.op
    if node.op == "Cast" and not torch_dtype(node.integer("to", 0)).is_floating_point:
        return "Cast to whole numbers"
    return None
