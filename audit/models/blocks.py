"""Compute blocks: every pass runs on the same number of rows, the last block padded with a repeated row.

A library picks its kernels by the shape of its input, so a row's result moves by about 1e-5 with the size of its batch.
With one fixed shape it is bit-identical under permutation, chunking and partial fill, as far as the kernels for that shape treat
all rows alike. Those of very small matrix products may not: MKL 2024.2 with AVX-512 adds up every other row differently where a
layer of two outputs and some widths between 32 and 79 inputs meets a block of 2 to 8 rows (of the sizes tried, at none from 16 to
128, and at none with 5 or 10 outputs), and another processor did so for 35 inputs and 5 outputs in a block of 32. There a score
depends on its row by rounding, some 1e-7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from audit.errors import OutOfMemory
from audit.models.scores import check_finite
from audit.models.shapes import check_images
from audit.result import ModelIdentity

_NO_MEMORY = ("DefaultCPUAllocator: can't allocate memory", "Failed to allocate memory", "bad_alloc", "CUDA out of memory")


@dataclass(frozen=True, kw_only=True)
class Block:
    """`rows` (b,) indices into the images given, from `start` on; the last `b - valid` repeat a valid row: their results go."""

    start: int
    rows: torch.Tensor
    valid: int


def blocks(count: int, block_rows: int, device: torch.device) -> Iterator[Block]:
    """Cut `count` rows into blocks of exactly `block_rows`; none for 0 rows."""
    for start in range(0, count, block_rows):
        rows = torch.arange(start, start + block_rows, device=device)
        # The padding is a valid row, so that whatever is computed from it is finite and its index is in range.
        yield Block(start=start, rows=rows.clamp(max=count - 1), valid=min(block_rows, count - start))


def map_blocks(
    images: torch.Tensor, block_rows: int, run: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
) -> tuple[torch.Tensor, ...]:
    """Apply `run` block by block and join the valid rows of each of its results.

    Args:
        images: (n, c, h, w), n >= 1.
        block_rows: rows per block.
        run: (block images (b, c, h, w), a copy that it may change, row indices (b,)) -> tensors with b rows each.

    Returns:
        As many tensors as `run` returns, n rows each.
    """
    parts = [
        tuple(result[: block.valid] for result in _fitting(run, _copied(images, block), block.rows))
        for block in blocks(images.shape[0], block_rows, images.device)
    ]
    return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))


def _copied(images: torch.Tensor, block: Block) -> torch.Tensor:
    """The images of a block; those of a full one lie side by side, which is quicker to copy."""
    full = block.valid == len(block.rows)
    return images[block.start : block.start + block.valid].clone() if full else images[block.rows]


def score_blocks(
    images: torch.Tensor, identity: ModelIdentity, block_rows: int, forward: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """The scores (n, K) of images (n, c, h, w), `forward` giving those of one block; none for no images.

    Raises:
        ModelError: the images have another shape than the model was loaded for, or the scores are not finite.
    """
    check_images(images, identity)
    if not len(images):
        return images.new_zeros(0, identity.classes)
    (scores,) = map_blocks(images.detach(), block_rows, lambda block, _: (forward(block),))
    check_finite(scores, identity.label)
    return scores


def _fitting(
    run: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]], images: torch.Tensor, rows: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """`run`, with the libraries' several ways of running out of memory as one error."""
    try:
        return run(images, rows)
    except Exception as error:
        # torch on the CPU and ONNX Runtime have no type of their own for it.
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in str(error) for words in _NO_MEMORY):
            raise OutOfMemory(
                f"a block of {len(images)} images does not fit into memory; use a machine or a device with more of it"
            ) from error
        raise
