"""Tier "native": saved-tensor hooks in C++ (door/). This module opens them with ctypes and switches them on and off."""

from __future__ import annotations

import ctypes
import functools
import gc
import threading
from ctypes import POINTER, c_char_p, c_int, c_int64, c_uint64, c_void_p

import torch

from . import _library, _pool, door
from ._library import NativeStash, Options
from ._notices import log_notice
from ._settings import Settings


class Pool(ctypes.Structure):
    """The struct vdnn_door_pool of door/door.h: functions of libvdnn_torch.so."""

    _fields_ = [(name, c_void_p) for name in ("get_base_allocation", "record_stream", "allocated")]


class DoesNotFit(Exception):
    """Tier "native" is not available; the text gives the reason."""


_LOG = ctypes.CFUNCTYPE(None, c_char_p)


@_LOG
def _log(text: bytes) -> None:
    log_notice(text.decode(errors="replace"))


@functools.cache
def open_door() -> ctypes.CDLL:
    """Opens the binary, after compiling it if necessary, and installs its engine in PyTorch. Raises DoesNotFit."""
    try:
        path = door.build()
    except door.CannotBuild as error:
        raise DoesNotFit(str(error)) from None
    try:
        binary = ctypes.CDLL(str(path))
    except OSError as error:
        raise DoesNotFit(f"{error} (delete the file to compile it anew)") from None
    binary.vdnn_door_last_error.restype = c_char_p
    binary.vdnn_door_open.argtypes = [c_char_p]
    binary.vdnn_door_create.argtypes = [POINTER(Options), c_uint64, POINTER(Pool)]
    binary.vdnn_door_create.restype = c_void_p
    binary.vdnn_door_start.argtypes = [c_void_p]
    binary.vdnn_door_stash.argtypes = [c_void_p, c_int]
    binary.vdnn_door_stash.restype = c_void_p
    binary.vdnn_door_log_with.argtypes = [_LOG]
    binary.vdnn_door_count_cpu.argtypes = [c_int64, c_int]
    binary.vdnn_door_cpu_bytes.restype = c_int64
    binary.vdnn_door_cpu_peak.restype = c_int64
    binary.vdnn_door_take_recent_cpu_peak.restype = c_int64
    if binary.vdnn_door_open(str(_library.library_path()).encode()) != 0:
        raise DoesNotFit(binary.vdnn_door_last_error().decode(errors="replace"))
    binary.vdnn_door_log_with(_log)
    return binary


counts_cpu_memory = threading.Event()  # set once the memory of tensors on the CPU is counted


def count_cpu_memory(*, poison: bool = False) -> None:
    """Counts the memory of tensors on the CPU from now on: of the tensors that Python sees now, and of all that are made later.

    poison: for tests; fills freed memory, so that reads of freed memory are detected.
    """
    storages = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.device.type == "cpu" and thing.layout is torch.strided:
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    open_door().vdnn_door_count_cpu(sum(storages.values()), poison)
    counts_cpu_memory.set()


def _pool_in_use() -> Pool | None:
    library = _pool.library()
    if library is None:
        return None
    return Pool(*(ctypes.cast(getattr(library, f"vdnn_torch_{name}"), c_void_p) for name, _ in Pool._fields_))


class NativeHooks:
    """Hooks for the tensors of all threads."""

    tier = "native"

    # Hooks that were started and not stopped; only the last ones are active.
    _started: list[NativeHooks] = []

    def __init__(self, settings: Settings) -> None:
        self._door = open_door()
        self._on_gpu = settings.device_type == "cuda"
        if self._on_gpu and not self._door.vdnn_door_knows_gpus():
            raise DoesNotFit(f"PyTorch {torch.__version__} does not let C++ access GPU streams")
        if not self._on_gpu:
            count_cpu_memory()
        options = _library.make_options(0 if self._on_gpu else _library.HOST, **settings.stash_options())
        pool = _pool_in_use() if self._on_gpu else None
        self._hooks = self._door.vdnn_door_create(ctypes.byref(options), settings.min_bytes, pool and ctypes.byref(pool))

    def start(self) -> None:
        self._started.append(self)
        self._serve()

    def stop(self) -> None:
        if self in self._started:  # otherwise the parent started them
            last = len(self._started) - 1 - self._started[::-1].index(self)
            del self._started[last]
            self._serve()

    def leave_to_parent(self) -> None:
        self._started.clear()
        self._serve()

    def stashes(self) -> dict[str, NativeStash]:
        names = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if self._on_gpu else ["cpu"]
        pointers = {name: self._door.vdnn_door_stash(self._hooks, index) for index, name in enumerate(names)}
        return {name: NativeStash(pointer) for name, pointer in pointers.items() if pointer}

    def _serve(self) -> None:
        self._door.vdnn_door_start(self._started[-1]._hooks if self._started else None)
