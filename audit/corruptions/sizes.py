"""What the published parameters become at other image sizes, and which kinds mean nothing there.

S is the shorter side. The nearest published size on a log scale gives the table, and s = S / that size scales what is a length in
pixels. Kernels are never made narrower than the smallest table has them, where they would no longer touch a neighbour.
"""

from __future__ import annotations

import math

from audit.corruptions.parameters import PUBLISHED, Row

# Below this, pixelate's published shares give the same grid twice.
FEWEST_PIXELATED = 20
# Elastic transform where nothing is published: the displacement field of 1 % of the side, for every severity a larger gain.
_ELASTIC_GAINS = (12.5, 16.25, 21.25, 25.0, 30.0)
_ELASTIC_SIGMA = 0.01
_ELASTIC_REACH = 0.005
# The ice of the procedural frost, in the grain of the photographs: what a cell is at 224 pixels, smaller below.
_FROST_GRAIN = {224: 1.0, 64: 0.3, 32: 0.2}


def table_for(height: int, width: int) -> int:
    """The published size whose parameters an image of this size takes.

    >>> table_for(28, 28), table_for(96, 128), table_for(299, 299)
    (32, 64, 224)
    """
    side = min(height, width)
    return 32 if side <= 45 else 64 if side <= 120 else 224


def parameters(kind: str, severity: int, height: int, width: int) -> Row:
    """The parameters of a kind at a severity (1 to 5) for images of this size.

    In the order of `audit.corruptions.parameters`; elastic transform has a fourth, the reach of its displacements before they are
    smoothed, and frost a third, the grain of the ice.
    """
    table, side = table_for(height, width), min(height, width)
    row, scale = PUBLISHED[table][kind][severity - 1], side / table
    kernel = max(scale, 1.0) if table == 32 else scale
    length = max(scale, 0.5) if table == 32 else scale
    match kind:
        case "gaussian_blur":
            return (row[0] * kernel,)
        case "defocus_blur":
            # A disc of less than a pixel, which 64 pixels scaled down would give, is none.
            return (row[0] * (kernel if table == 224 else max(scale, 1.0)), row[1])
        case "glass_blur":
            return (row[0] * kernel, max(1, round(row[1] * kernel)), row[2])
        case "motion_blur":
            return (max(1, math.ceil(row[0] * length)), row[1] * length)
        case "snow":
            mean, deviation, flake, threshold, reach, sigma, kept = row
            return (mean, deviation, max(1.0, flake * kernel), threshold, max(1, math.ceil(reach * length)), sigma * length, kept)
        case "frost":
            return (*row, _FROST_GRAIN[table] * kernel)
        case "spatter":
            mean, deviation, sigma, threshold, amount, mud = row
            return (mean, deviation, sigma * kernel, threshold, amount * kernel if mud else amount, mud)
        case "elastic_transform":
            if side not in PUBLISHED:
                return (_ELASTIC_GAINS[severity - 1], _ELASTIC_SIGMA * side, 0.0, _ELASTIC_REACH * side)
            return (*row, 1.0)
        case "pixelate" if side < FEWEST_PIXELATED:
            # Five different grids, coarser than published.
            return (max(1, min(int(side * row[0]), side - severity)) / side + 1e-6,)
    return row


def not_applicable(kind: str, channels: int) -> str | None:
    """Why a kind changes nothing about such images; None where it does.

    >>> not_applicable("saturate", 1)
    'grey images have no saturation'
    """
    return "grey images have no saturation" if kind == "saturate" and channels == 1 else None


def degenerate(kind: str, height: int, width: int) -> str | None:
    """What a reader must know of a kind whose severities are not the published ones on such small images; None elsewhere.

    >>> degenerate("pixelate", 28, 28)
    """
    if kind == "pixelate" and min(height, width) < FEWEST_PIXELATED:
        return f"below {FEWEST_PIXELATED} pixels its grids are coarser than published, and severity does not order them"
    return None
