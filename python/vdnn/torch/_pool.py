"""GPU memory of PyTorch from vdnn's pools: libvdnn_torch.so as PyTorch's pluggable allocator (docs/allocator.md)."""

from __future__ import annotations

import ctypes
import os
import pathlib

import torch

from ._recent_peak import MemoryFigures
from ._sizes import parse_size

ENVIRONMENT = "VDNN_TORCH_LIBRARY"

# PyTorch's setters, and the functions of libvdnn_torch.so that they receive, without vdnn_torch_.
_HOOKS = {
    "set_init_fn": "init",
    "set_reset_fn": "reset",
    "set_memory_fraction_fn": "set_memory_fraction",
    "set_base_alloc_fn": "get_base_allocation",
    "set_record_stream_fn": "record_stream",
    "set_begin_allocate_to_pool": "begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "end_allocate_to_pool",
    "set_release_pool": "release_pool",
}


class _Figure(ctypes.Structure):
    """vdnn_allocator_figure of vdnn/allocator.h."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("current", "peak", "added", "removed")]


_library: ctypes.CDLL | None = None
_budget: int | None = None
_is_settled = False


def settle() -> None:
    """Hooks for GPUs have been made. They keep the allocator that they have found, so use_pool() would come too late."""
    global _is_settled
    _is_settled = True


def library_path() -> pathlib.Path:
    """The path of libvdnn_torch.so: VDNN_TORCH_LIBRARY if set, else the copy beside this file, as in a wheel."""
    if named := os.environ.get(ENVIRONMENT):
        return pathlib.Path(named)
    return pathlib.Path(__file__).parent / "lib" / "libvdnn_torch.so"


def _load() -> ctypes.CDLL:
    path = library_path()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise RuntimeError(f"vdnn.torch.use_pool(): {error}; set {ENVIRONMENT} to use another libvdnn_torch.so") from error
    library.vdnn_torch_last_error.restype = ctypes.c_char_p
    library.vdnn_torch_set_budget.argtypes = [ctypes.c_uint64, ctypes.c_int]
    library.vdnn_torch_allocated.argtypes = [ctypes.c_int, ctypes.POINTER(_Figure)]
    library.vdnn_torch_allocated.restype = None
    library.vdnn_torch_reset_peaks.argtypes = [ctypes.c_int]
    library.vdnn_torch_reset_peaks.restype = None
    library.vdnn_torch_get_base_allocation.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.vdnn_torch_get_base_allocation.restype = ctypes.c_void_p
    library.vdnn_torch_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


def _set_budget(library: ctypes.CDLL, budget: int) -> None:
    for device in range(torch.cuda.device_count()):
        if library.vdnn_torch_set_budget(budget, device) != 0:
            raise RuntimeError(library.vdnn_torch_last_error().decode())


def _plug_in(library: ctypes.CDLL) -> None:
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library._name, "vdnn_torch_malloc", "vdnn_torch_free")
    hooks = allocator.allocator()
    for setter, name in _HOOKS.items():
        function = getattr(library, f"vdnn_torch_{name}")
        getattr(hooks, setter)(ctypes.cast(function, ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)


def use_pool(budget: int | str | None = None) -> None:
    """Serves PyTorch's GPU memory from vdnn's pools from now on, one pool for each GPU.

    budget: limit for all memory of a GPU ("10GiB", or bytes); None: all of the GPU's memory. A request beyond this limit raises
        torch.OutOfMemoryError. The limit also determines the default budget of enable() and offload().

    Call it before enable() and offload(), and before the first tensor is on a GPU; the pools last as long as the process. Raises
    RuntimeError if the call is too late, ValueError or TypeError for an invalid budget.
    """
    global _library, _budget
    bytes_wanted = None if budget is None else parse_size(budget, "budget")
    if bytes_wanted == 0:
        raise ValueError("budget is 0: a pool needs memory")
    if _library is not None:
        raise RuntimeError("vdnn.torch.use_pool() was called already; the pools last as long as the process")
    if _is_settled:
        raise RuntimeError("vdnn.torch.use_pool() must be called before enable() and offload(), which use the allocator they find")
    library = _load()
    if bytes_wanted is not None:
        _set_budget(library, bytes_wanted)
    _plug_in(library)
    _library, _budget = library, bytes_wanted


def budget_of_tensors() -> int | None:
    """The most bytes of tensors that the pools can serve; None if use_pool() set no budget.

    A pool holds up to 1.10 times the peak of live bytes (docs/allocator.md, "How much memory it needs").
    """
    return None if _budget is None else _budget * 10 // 11


def library() -> ctypes.CDLL | None:
    """libvdnn_torch.so, if PyTorch's GPU memory comes from its pools; else None."""
    return _library


def use_on(address: int, stream: int) -> bool:
    """Records that `stream` also uses the block at `address` until the block is freed. Returns False if no block begins
    there."""
    if _library is None or not _library.vdnn_torch_get_base_allocation(address, None):
        return False
    _library.vdnn_torch_record_stream(address, stream)
    return True


def memory_figures(device: int) -> MemoryFigures:
    """Memory of tensors on the GPU; zeros, which mean unknown, if a plugged-in allocator other than vdnn's has no figures."""
    if _library is not None:
        found = _Figure()
        _library.vdnn_torch_allocated(device, ctypes.byref(found))
        return MemoryFigures(found.current, found.peak, found.added)
    try:
        found = torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]
    except RuntimeError as error:
        if "CUDAPluggableAllocator" not in str(error):
            raise
        return MemoryFigures(0, 0, 0)
    return MemoryFigures(found["current"], found["peak"], found["allocated"])
