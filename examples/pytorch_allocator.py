"""Trains a small network in PyTorch, in memory of vdnn's pool.

    python3 examples/pytorch_allocator.py libvdnn_torch.so

The pool must exist before PyTorch allocates its first block. The program prints the decreasing loss, and the pool's peaks of
requested and reserved bytes: torch.cuda.memory_stats() does not work with plugged-in allocators.
"""

import ctypes
import sys

import torch

# From vdnn/allocator.h.
VERSION = 2


class Figure(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("current", "peak", "added", "removed")]


class Figures(ctypes.Structure):
    _fields_ = [(name, Figure) for name in ("blocks", "requested", "allocated", "active", "reserved")]


class Statistics(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        *((name, Figures) for name in ("all", "small_blocks", "large_blocks", "persistent_blocks")),
        ("counts", ctypes.c_uint64 * 13),
    ]


def use_pool(path):
    """Makes the library's pools PyTorch's allocator; returns the library."""
    library = ctypes.CDLL(path)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "vdnn_torch_malloc", "vdnn_torch_free")
    hooks = allocator.allocator()
    for set_hook, function in (
        (hooks.set_init_fn, library.vdnn_torch_init),
        (hooks.set_reset_fn, library.vdnn_torch_reset),
        (hooks.set_memory_fraction_fn, library.vdnn_torch_set_memory_fraction),
        (hooks.set_base_alloc_fn, library.vdnn_torch_get_base_allocation),
        (hooks.set_record_stream_fn, library.vdnn_torch_record_stream),
        (hooks.set_begin_allocate_to_pool, library.vdnn_torch_begin_allocate_to_pool),
        (hooks.set_end_allocate_to_pool_fn, library.vdnn_torch_end_allocate_to_pool),
        (hooks.set_release_pool, library.vdnn_torch_release_pool),
    ):
        set_hook(ctypes.cast(function, ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)
    return library


def train(steps):
    torch.manual_seed(1)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 32 * 32, 10)
    ).cuda()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    images = torch.randn(64, 3, 32, 32, device="cuda")
    classes = torch.randint(10, (64,), device="cuda")
    for step in range(steps):
        loss = torch.nn.functional.cross_entropy(network(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}  loss {loss.item():.4f}")


def statistics_of(library):
    """The statistics of the first GPU's pool."""
    statistics = Statistics(version=VERSION)
    if library.vdnn_torch_statistics(0, ctypes.byref(statistics)) != 0:
        library.vdnn_torch_last_error.restype = ctypes.c_char_p
        sys.exit(library.vdnn_torch_last_error().decode())
    return statistics


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} libvdnn_torch.so")
    library = use_pool(sys.argv[1])
    train(10)
    statistics = statistics_of(library)
    print(f"peak requested  {statistics.all.requested.peak} bytes")
    print(f"peak reserved   {statistics.all.reserved.peak} bytes")


if __name__ == "__main__":
    main()
