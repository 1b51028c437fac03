"""Memory of all tensors: PyTorch counts it on GPUs, the binary of tier "native" on the CPU."""

from __future__ import annotations

import torch

from . import _pool
from ._native_hooks import DoesNotFit, count_cpu_memory, open_door


def measure_memory() -> None:
    """Counts the memory of tensors on the CPU from now on, including the tensors that Python sees now.

    Hooks of tier "native" for the CPU start this count, too. Does nothing if there is a GPU, whose memory PyTorch counts.
    Raises RuntimeError if the binary cannot be made.
    """
    if torch.cuda.is_available():
        return
    try:
        count_cpu_memory()
    except DoesNotFit as reason:
        raise RuntimeError(f"vdnn.torch cannot count memory on the CPU: {reason}") from None


def reset_peak_memory() -> None:
    """Restarts the measurement of peak_memory()."""
    if pools := _pool.library():
        pools.vdnn_torch_reset_peaks(torch.cuda.current_device())
    elif torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        open_door().vdnn_door_reset_cpu_peak()


def peak_memory() -> int:
    """The peak of tensor bytes on the current GPU, or on the CPU after measure_memory()."""
    if _pool.library():
        return _pool.memory_figures(torch.cuda.current_device()).peak
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return open_door().vdnn_door_cpu_peak()
