"""Where a model runs. What was asked for is honoured or refused, never silently replaced."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from audit.errors import InputError

CHOICES = ("auto", "cpu", "cuda")


def check(device: str) -> None:
    """Make sure `device` is a choice at all.

    Raises:
        InputError: it is not.
    """
    if device not in CHOICES:
        raise InputError(f"there is no device {device!r}; choose one of {', '.join(CHOICES)}")


def torch_device(device: str) -> torch.device:
    """Return the torch device for `auto`, `cpu` or `cuda`.

    Raises:
        InputError: cuda was asked for and torch cannot use it.
    """
    check(device)
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        built = "this build of torch has no CUDA" if torch.version.cuda is None else "torch finds no usable GPU or driver"
        raise InputError(
            f"--device cuda cannot be honoured: {built}; check nvidia-smi and `audit doctor`, or run with --device cpu"
        )
    return torch.device("cuda", torch.cuda.current_device()) if available and device != "cpu" else torch.device("cpu")


def exact() -> AbstractContextManager[None]:
    """Convolutions in full float32 and with repeatable kernels.

    cuDNN's default on newer GPUs rounds their inputs to 10 bits (TF32), which moves logits by about 1e-3, and may choose kernels
    that add up in another order from call to call.
    """
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)


def described(device: torch.device) -> str:
    """`cpu`, or `cuda:0 (name of the GPU)`."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
