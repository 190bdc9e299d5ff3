"""The operators that have a conversion, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from audit.errors import MissingCapability
from audit.models.onnx_torch import (
    activations,
    convolutions,
    elementwise,
    indexing,
    matrices,
    normalisations,
    pools,
    quantisation,
    reductions,
    resize,
    shapes,
)
from audit.models.onnx_torch.node import STANDARD, Operator
from audit.text import printable

TABLE: Mapping[str, Operator] = {
    **elementwise.TABLE,
    **activations.TABLE,
    **convolutions.TABLE,
    **pools.TABLE,
    **normalisations.TABLE,
    **matrices.TABLE,
    **reductions.TABLE,
    **shapes.TABLE,
    **indexing.TABLE,
    **resize.TABLE,
    **quantisation.TABLE,
}


def check_known(protos: Iterable[Any]) -> None:
    """Make sure that every node has a conversion.

    Raises:
        MissingCapability: some have none; names each operator and its domain once.
    """
    unknown = {(proto.op_type, proto.domain) for proto in protos if proto.domain not in STANDARD or proto.op_type not in TABLE}
    if unknown:
        named = [
            printable(op, 60) + ("" if domain in STANDARD else f" (domain {printable(domain, 60)})")
            for op, domain in sorted(unknown)
        ]
        what = f"operator {named[0]} has" if len(named) == 1 else f"operators {', '.join(named)} have"
        raise MissingCapability(f"{what} no conversion")
