#!/usr/bin/env python3
"""The stream pool from Python, with only ctypes: pool_in_python.py [libvdnn_allocator.so.1]

Prints the pool's granule and budget. Then allocates 20 blocks, each after the previous one was freed. The pool grows once:

    granule         2097152
    budget          67108864
    blocks          20
    growths         1
    not given back  0
"""

import ctypes
import sys

VERSION = 2  # VDNN_ALLOCATOR_VERSION
EXHAUSTED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64)


class Options(ctypes.Structure):  # vdnn_allocator_options
    _fields_ = [("version", ctypes.c_uint32), ("device", ctypes.c_int32)]
    _fields_ += [(name, ctypes.c_uint64) for name in ("budget_bytes", "high_water_bytes", "small_bytes", "cache_bytes")]
    _fields_ += [("ends_are_told", ctypes.c_uint32), ("stack_traces", ctypes.c_uint32)]
    _fields_ += [("history_events", ctypes.c_uint64), ("name", ctypes.c_char_p)]
    _fields_ += [("on_exhausted", EXHAUSTED), ("user_data", ctypes.c_void_p)]


class Figure(ctypes.Structure):  # vdnn_allocator_figure
    _fields_ = [(name, ctypes.c_uint64) for name in ("current", "peak", "added", "removed")]


class Figures(ctypes.Structure):  # vdnn_allocator_figures
    _fields_ = [(name, Figure) for name in ("blocks", "requested", "allocated", "active", "reserved")]


class Statistics(ctypes.Structure):  # vdnn_allocator_statistics
    _fields_ = [("version", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]
    _fields_ += [(name, Figures) for name in ("all", "small_blocks", "large_blocks", "persistent_blocks")]
    _fields_ += [
        (name, ctypes.c_uint64)
        for name in ("reused_from_cache", "reused_at_once", "reused_after_wait", "growths", "events_recorded",
                     "stream_waits", "host_waits", "device_waits", "retries", "failures", "freed_unordered",
                     "events_held", "streams_tracked")
    ]


class Pool:
    """A separate pool on one GPU. Streams are cudaStream_t as integers, 0 for the legacy default stream."""

    def __init__(self, library, budget_bytes):
        self._library = ctypes.CDLL(library)
        self._library.vdnn_last_error.restype = ctypes.c_char_p
        options = Options()
        self._call("options_init", ctypes.byref(options), VERSION)
        options.budget_bytes = budget_bytes
        self._pool = ctypes.c_void_p()
        self._call("create", ctypes.byref(options), ctypes.byref(self._pool))

    def _call(self, name, *arguments):
        if getattr(self._library, "vdnn_allocator_" + name)(*arguments) != 0:
            raise RuntimeError(self._library.vdnn_last_error().decode())

    def _number(self, name):
        number = ctypes.c_uint64()
        self._call(name, self._pool, ctypes.byref(number))
        return number.value

    def allocate(self, size, stream=0):
        address = ctypes.c_void_p()
        self._call("allocate", self._pool, ctypes.c_uint64(size), ctypes.c_void_p(stream), 0, ctypes.byref(address))
        return address.value

    def free(self, address):
        self._call("free", self._pool, ctypes.c_void_p(address))

    def reserve(self, size):
        self._call("reserve", self._pool, ctypes.c_uint64(size))

    def granule_bytes(self):
        return self._number("granule_bytes")

    def budget_bytes(self):
        return self._number("budget_bytes")

    def statistics(self):
        statistics = Statistics()
        self._call("statistics_init", ctypes.byref(statistics), VERSION)
        self._call("get_statistics", self._pool, ctypes.byref(statistics))
        return statistics

    def close(self):
        self._call("destroy", self._pool)


def main():
    library = sys.argv[1] if len(sys.argv) > 1 else "libvdnn_allocator.so.1"
    try:
        pool = Pool(library, 64 << 20)
        pool.reserve(4 << 20)
        print(f"granule         {pool.granule_bytes()}")
        print(f"budget          {pool.budget_bytes()}")
        for size in range(1000, 4000000, 200000):
            pool.free(pool.allocate(size))
        statistics = pool.statistics()
        print(f"blocks          {statistics.all.blocks.added}")
        print(f"growths         {statistics.growths}")
        print(f"not given back  {statistics.all.blocks.current}")
        pool.close()
    except RuntimeError as error:
        sys.exit(f"pool_in_python: {error}")


if __name__ == "__main__":
    main()
