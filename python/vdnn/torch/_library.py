"""libvdnn_stash.so through ctypes: declares the functions of vdnn/stash.h, and turns failures into exceptions."""

from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_uint32, c_uint64, c_void_p

VERSION = 1
HOST = -1

# Answers of put and leave (vdnn/stash.h).
KEPT, LEAVES, SHARED, VERDICT, RELEASED, LEAVING, NOTICE, WATCHED = 0, 1, 2, 3, 4, 8, 16, 32
# Answers of read.
IN_PLACE, BACK, MISSING, FETCHES, LAST = 1, 2, 4, 8, 16

# The most handles that one call returns; callers call again while the array is full.
BATCH = 64

# Longer than any notice.
_NOTICE_BYTES = 512


class Options(ctypes.Structure):
    _fields_ = [
        ("version", c_uint32),
        ("device", c_int32),
        ("budget_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("ahead_bytes", c_uint64),
        ("flight_bytes", c_uint64),
        ("release_at_put", c_uint32),
        ("timed", c_uint32),
        ("delay_seed", c_uint64),
    ]


STATISTICS = (
    "puts shared left refused fetched_ahead fetched_late late_when_repeated out_bytes in_bytes live_handles host_bytes "
    "host_peak_bytes device_peak_bytes planned_peak_bytes page_locks page_locks_when_repeated steps repeated_steps "
    "diverged_steps plans copy_nanoseconds wait_nanoseconds planned_out_bytes"
).split()


class Statistics(ctypes.Structure):
    _fields_ = [("version", c_uint32), ("reserved", c_uint32), *((name, c_uint64) for name in STATISTICS)]


# The functions' names without vdnn_stash_, and the types of their arguments after the stash.
_CALLS = {
    "streams": [POINTER(c_void_p), POINTER(c_void_p)],
    "put": [c_void_p, c_uint64, c_void_p, c_uint64, c_uint64, c_uint64, c_uint64, POINTER(c_uint64), POINTER(c_uint32)],
    "leaving": [POINTER(c_uint64), c_uint32, POINTER(c_uint32)],
    "leave": [c_uint64, c_void_p, POINTER(c_uint32)],
    "stay": [c_uint64],
    "hold": [c_uint64],
    "note_held": [c_uint64, c_uint32],
    "note_peak": [c_uint64],
    "released": [c_void_p, POINTER(c_uint64), c_uint32, POINTER(c_uint32)],
    "read": [c_uint64, c_void_p, c_uint64, c_uint32, POINTER(c_uint32)],
    "fetches": [c_uint64, POINTER(c_uint64), POINTER(c_uint64), c_uint32, POINTER(c_uint32)],
    "fetch": [c_uint64, c_void_p, c_void_p],
    "ready": [c_uint64, c_void_p],
    "drop": [c_uint64],
    "forget": [],
    "get_statistics": [POINTER(Statistics)],
    "learned_step": [c_char_p, c_uint64, POINTER(c_uint64)],
    "take_notice": [c_char_p, c_uint64, POINTER(c_uint64)],
}

ENVIRONMENT = "VDNN_STASH_LIBRARY"


class StashError(RuntimeError):
    """A call of libvdnn_stash.so failed; the text gives the reason."""


def library_path() -> pathlib.Path:
    """The path of libvdnn_stash.so: VDNN_STASH_LIBRARY if set, else the copy beside this file, as in a wheel."""
    if named := os.environ.get(ENVIRONMENT):
        return pathlib.Path(named)
    return pathlib.Path(__file__).parent / "lib" / "libvdnn_stash.so"


def _load() -> ctypes.CDLL:
    path = library_path()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(
            f"vdnn.torch needs libvdnn_stash.so, which cannot be opened: {error}. A wheel contains it; in a source tree, "
            f"build the target vdnn_stash_shared and set {ENVIRONMENT} to its path."
        ) from None
    try:
        _declare(library)
    except AttributeError as error:
        raise ImportError(f"vdnn.torch needs another version of libvdnn_stash.so than {path}: {error}") from None
    return library


def _declare(library: ctypes.CDLL) -> None:
    for name, arguments in _CALLS.items():
        function = getattr(library, f"vdnn_stash_{name}")
        function.argtypes = [c_void_p, *arguments]
        function.restype = c_int
    library.vdnn_stash_options_init.argtypes = [POINTER(Options), c_uint32]
    library.vdnn_stash_statistics_init.argtypes = [POINTER(Statistics), c_uint32]
    library.vdnn_stash_default_host_bytes.argtypes = [POINTER(c_uint64)]
    library.vdnn_stash_create.argtypes = [POINTER(Options), POINTER(c_void_p)]
    library.vdnn_stash_destroy.argtypes = [c_void_p]
    library.vdnn_last_error.restype = c_char_p


LIBRARY = _load()


def check(status: int) -> None:
    if status != 0:
        raise StashError(f"vdnn: {LIBRARY.vdnn_last_error().decode(errors='replace')}")


def make_options(device: int, **values: int) -> Options:
    options = Options()
    check(LIBRARY.vdnn_stash_options_init(byref(options), VERSION))
    options.device = device
    for name, value in values.items():
        setattr(options, name, value)
    return options


def default_host_bytes() -> int:
    """The default budget of page-locked memory for all stashes of the machine together."""
    size = c_uint64()
    check(LIBRARY.vdnn_stash_default_host_bytes(byref(size)))
    return size.value


class NativeStash:
    """A vdnn_stash. The subclass OwnedStash also owns it."""

    def __init__(self, pointer: int | c_void_p) -> None:
        self.pointer = pointer

    def statistics(self) -> dict[str, int]:
        figures = Statistics()
        check(LIBRARY.vdnn_stash_statistics_init(byref(figures), VERSION))
        check(LIBRARY.vdnn_stash_get_statistics(self.pointer, byref(figures)))
        return {name: getattr(figures, name) for name in STATISTICS}

    def offload_stream(self) -> int:
        """The stream of copies to the host. Only for a stash of a GPU."""
        offload, prefetch = c_void_p(), c_void_p()
        check(LIBRARY.vdnn_stash_streams(self.pointer, byref(offload), byref(prefetch)))
        return offload.value or 0

    def learned_step(self) -> str:
        needed = c_uint64()
        check(LIBRARY.vdnn_stash_learned_step(self.pointer, None, 0, byref(needed)))
        text = ctypes.create_string_buffer(needed.value)
        check(LIBRARY.vdnn_stash_learned_step(self.pointer, text, needed.value, byref(needed)))
        return text.value.decode()

    def take_notice(self) -> str:
        """The next notice for the user, empty if there is none. Each notice is returned once."""
        text, needed = ctypes.create_string_buffer(_NOTICE_BYTES), c_uint64()
        check(LIBRARY.vdnn_stash_take_notice(self.pointer, text, _NOTICE_BYTES, byref(needed)))
        return text.value.decode()


class OwnedStash(NativeStash):
    """A stash that is destroyed with this object. Saved tensors keep the object alive."""

    def __init__(self, options: Options) -> None:
        super().__init__(c_void_p())
        check(LIBRARY.vdnn_stash_create(byref(options), byref(self.pointer)))
        self._destroy = LIBRARY.vdnn_stash_destroy  # kept, since modules are emptied before the last objects die at exit

    def __del__(self) -> None:
        if self.pointer:
            self._destroy(self.pointer)
