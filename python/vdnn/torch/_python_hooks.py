"""Tier "python": saved-tensor hooks in Python, for every PyTorch from 2.4 on.

A hook sees a tensor when autograd saves it (`pack`) and when a backward node needs it (`unpack`). Tensors that are not allowed
to leave are kept as PyTorch would keep them. All other tensors follow the contract of vdnn/stash.h. Each storage at one version
has a `Block`, with one handle of the stash. Each tensor that autograd saves over that storage has a `Saved`.

A block is identified by a weak reference to its storage. While a block holds this reference, PyTorch does not reuse the address
of the StorageImpl, so (address, version) identifies the contents as long as the handle lives.

Two tensors over one storage may have version counters of their own (`.data`), so that equal versions do not mean equal contents.
Python cannot compare counters, but a view has its base's counter. So a block is for one tensor and its views. Other tensors over
its storage, for example those of `.data` and `.detach()`, are kept as PyTorch would keep them.

A tensor without a history is deferred: it is put at a later save, once nobody else holds its storage, or never. So a buffer
stays on the device. Operations update buffers without counting a version (see door/device_stash.h).

Python hooks disable PyTorch's check that a saved tensor has not been changed in place, so these hooks check it themselves. The
result of `detach()` shares the version counter of its tensor. Replacing that result's `.data` by an empty tensor releases the
storage and keeps the counter.
"""

from __future__ import annotations

import collections
import heapq
import itertools
import threading
import weakref
from collections.abc import Iterator
from ctypes import byref, c_uint32, c_uint64
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import _library, _native_hooks, _pool
from ._library import BATCH, LIBRARY, NativeStash, OwnedStash, check, make_options
from ._notices import log_notice
from ._recent_peak import RecentPeak
from ._settings import Settings

_PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))
_SIGNATURE_MASK = (1 << 63) - 1
_PARTS_OF_AGE = 4  # a deferred block is checked again when its age has grown by 1/_PARTS_OF_AGE
_PARTS_OF_TIME = 64  # while a step is learned, a watched block is checked again when its watch has grown by 1/_PARTS_OF_TIME


def refuse_changed_tensor(kind: str, shape: torch.Size, found: int, expected: int) -> None:
    """Raises the error that PyTorch's own check raises."""
    raise RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{kind} {list(shape)}] is at version {found}; expected version {expected} instead. Hint: enable anomaly "
        "detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True)."
    )


class Block:
    """A storage at one version. The contents are in `source` until it is released, and in `target` once they are back."""

    __slots__ = (
        "handle", "key", "weak", "root", "source", "target", "target_stream", "bytes", "signature", "stream", "counter", "version",
        "users", "puts", "saved_at", "is_deferred", "is_watched", "savers", "leaves", "sources", "__weakref__",
    )  # fmt: skip

    def __init__(
        self,
        key: tuple[int, int],
        storage: torch.UntypedStorage,
        tensor: torch.Tensor,
        stream: int | None,
        sources: collections.Counter[int],
    ) -> None:
        self.handle = 0  # 0: not put yet
        self.key = key
        self.weak = StorageWeakRef(storage)
        self.root = weakref.ref(_root_of(tensor))
        self.source: torch.UntypedStorage | None = storage
        self.target: torch.UntypedStorage | None = None
        self.target_stream: int | None = None  # the stream on which the target was allocated
        self.bytes = storage.nbytes()
        self.signature = hash((tensor.shape, tensor.dtype, self.bytes)) & _SIGNATURE_MASK
        self.stream = stream  # the stream whose work so far produces the tensor
        self.counter = _version_counter_of(tensor)
        self.version = key[1]
        self.users = 0  # saves that have not been dropped
        self.puts = 0  # saves that the stash knows: all of `users`, or none
        self.saved_at = 0  # for a deferred block: the number of saves when it was saved
        self.is_deferred = False
        self.is_watched = False  # whether to tell the stash when nobody else holds the block any more
        self.savers: dict[int, torch.cuda.Stream] = {}  # GPU streams that saved the block's tensors
        self.leaves = False  # whether the block is leaving, or has left
        # By address of the storage: how many blocks hold their sources. All versions of a storage share one object of Python,
        # which counts as one user.
        self.sources = sources
        sources[key[0]] += 1

    def is_unchanged(self) -> bool:
        return self.counter._version == self.version

    def held_by_others(self) -> torch.UntypedStorage | None:
        """The source, if others than this block hold it; else None. A block of another version counts."""
        if self.source is not None:
            return self.source if self._is_source_shared() else None
        return torch.UntypedStorage._new_with_weak_ptr(self.weak.cdata)

    def is_held_by_others(self) -> bool:
        return self._is_source_shared() if self.source is not None else not self.weak.expired()

    def release_source(self) -> None:
        if self.source is None:
            return
        self.source = None
        self.sources[self.key[0]] -= 1
        if not self.sources[self.key[0]]:
            del self.sources[self.key[0]]

    def _is_source_shared(self) -> bool:
        return self.sources[self.key[0]] > 1 or torch._C._storage_Use_Count(self.source._cdata) > 1


class Saved:
    """A tensor that autograd has saved, as a view of a block."""

    __slots__ = ("stash", "block", "shape", "stride", "offset", "dtype", "leaf")

    def __init__(self, stash: DeviceStash, block: Block, tensor: torch.Tensor) -> None:
        self.stash = stash
        self.block = block
        self.shape = tensor.shape
        self.stride = tensor.stride()
        self.offset = tensor.storage_offset()
        self.dtype = tensor.dtype
        # If a leaf is still alive when it is read, the reader gets the leaf itself, with its attributes.
        self.leaf = weakref.ref(tensor) if tensor.is_leaf else None

    def __del__(self) -> None:
        self.stash.drop(self.block)


def _root_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor of which `tensor` is a view, or itself; both have one version counter."""
    return tensor._base if tensor._is_view() else tensor


_empty: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}


def _version_counter_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without storage that always has the `_version` of `tensor`."""
    key = (tensor.dtype, tensor.device)
    empty = _empty.get(key)
    if empty is None:
        empty = _empty[key] = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    counter = tensor.detach()
    counter.data = empty
    return counter


class DeviceStash:
    """The stash of one device; the hooks of all threads share it."""

    def __init__(self, device: torch.device, settings: Settings) -> None:
        on_gpu = self._is_gpu = device.type == "cuda"
        options = make_options(device.index if on_gpu else _library.HOST, **settings.stash_options())
        self.device = device
        self.native = OwnedStash(options)
        self._offload_stream = self.native.offload_stream() if options.release_at_put else None
        self._pointer = self.native.pointer
        self._lock = threading.Lock()
        self._blocks: dict[tuple[int, int], Block] = {}
        self._sources: collections.Counter[int] = collections.Counter()
        self._by_handle: dict[int, Block] = {}
        self._saves = 0
        # Sorted by the save at which a block is checked next; the second number breaks ties. Dropped blocks stay in the list
        # until then.
        self._deferred: list[tuple[int, int, Block]] = []
        self._ranks = itertools.count()
        # The look (a pass over watched blocks) at which the watch began, the look at which the block is checked next, and the
        # block.
        self._watched: list[tuple[int, int, Block]] = []
        self._looks = 0
        self._dropped: collections.deque[Block] = collections.deque()
        self._handle, self._answer, self._count = c_uint64(), c_uint32(), c_uint32()
        self._handles, self._sizes = (c_uint64 * BATCH)(), (c_uint64 * BATCH)()
        if on_gpu:
            self._stream = lambda: torch._C._cuda_getCurrentRawStream(device.index)
            recent_peak = RecentPeak(lambda: _pool.memory_figures(device.index))
            self._memory, self._restart_peak = recent_peak.take, recent_peak.restart
        else:  # on the CPU the calling thread is the compute stream
            self._stream = lambda: None
            if _native_hooks.counts_cpu_memory.is_set():
                door = _native_hooks.open_door()
                self._memory = lambda: (door.vdnn_door_take_recent_cpu_peak(), door.vdnn_door_cpu_bytes())
                self._restart_peak = door.vdnn_door_take_recent_cpu_peak
            else:  # unknown memory: the stash counts the saved tensors
                self._memory, self._restart_peak = (lambda: (0, 0)), (lambda: None)

    def save(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> Saved | None:
        """Returns None if the tensor must stay."""
        key = (storage._cdata, tensor._version)
        saved = None
        with self._lock:
            stream = self._stream()
            if self._is_gpu and not self._blocks:
                self._restart_peak()  # excludes the optimizer's peak, which offloading could not reduce
            self._saves += 1
            self._note_who_let_go()
            answer = self._put_what_nobody_holds()
            block = self._blocks.get(key)
            if block is None:
                block = self._blocks[key] = Block(key, storage, tensor, stream, self._sources)
            if block.root() is _root_of(tensor):
                block.users += 1
                saved = Saved(self, block, tensor)  # if anything fails from here on, it ends this use
                answer |= self._enter(block, tensor, storage, stream)
            self._follow(answer, stream)
        self._drain()
        if answer & _library.NOTICE and (notice := self.native.take_notice()):
            log_notice(notice)
        return saved

    def _enter(self, block: Block, tensor: torch.Tensor, storage: torch.UntypedStorage, stream: int | None) -> int:
        """Returns the answers of vdnn_stash_put()."""
        if stream is not None and stream not in block.savers:
            self._note_saver(block, storage, stream)
        if block.puts or tensor.requires_grad:
            return self._put(block, storage)
        if not block.is_deferred:
            block.saved_at = self._saves
            self._defer(block)
        return 0

    def load(self, saved: Saved) -> torch.Tensor:
        block = saved.block
        if not block.is_unchanged():
            kind = torch.empty(0, dtype=saved.dtype, device=self.device).type()
            refuse_changed_tensor(kind, saved.shape, block.counter._version, block.version)
        leaf = saved.leaf and saved.leaf()  # a live leaf keeps its storage in place
        with self._lock:
            storage = self._read(block)
        self._drain()
        if leaf is not None:
            return leaf
        view = torch.empty(0, dtype=saved.dtype, device=self.device).set_(storage, saved.offset, saved.shape, saved.stride)
        tensor = block.counter.detach()  # shares the counter, so that the next reader detects an in-place change by this reader
        tensor.data = view
        return tensor

    def drop(self, block: Block) -> None:
        """Destructors call this at any point of any thread, even in the garbage collector while this thread holds the lock. So
        it never waits for the lock."""
        self._dropped.append(block)
        self._drain()

    def _put(self, block: Block, storage: torch.UntypedStorage) -> int:
        """Tells the stash about all saves that it does not know. Returns the answers of vdnn_stash_put()."""
        answers = 0
        while block.puts < block.users:
            check(LIBRARY.vdnn_stash_put(
                self._pointer, storage.data_ptr(), block.bytes, block.stream, *block.key, block.signature,
                self._bytes_in_use(), byref(self._handle), byref(self._answer)))  # fmt: skip
            block.handle = self._handle.value
            block.puts += 1
            self._by_handle[block.handle] = block
            block.is_deferred = False
            self._release_at_put(block, self._answer.value)
            answers |= self._answer.value
        if answers & _library.WATCHED and not block.is_watched:
            self._watch(block)
        return answers

    def _watch(self, block: Block) -> None:
        """Begins to watch a block that others hold: before saves and reads of a step that is learned, the block is checked, and
        the stash is told when nobody else holds it any more."""
        if not block.is_held_by_others():
            return  # it was deferred until nobody else held it
        self._watched.append((self._looks, self._looks + 1, block))
        block.is_watched = True
        check(LIBRARY.vdnn_stash_note_held(self._pointer, block.handle, 1))

    def _note_who_let_go(self) -> None:
        self._looks += 1
        if not self._watched:
            return
        kept = []
        for since, look_at, block in self._watched:
            if self._looks >= look_at:
                block.is_watched = block.is_held_by_others()
                look_at = self._looks + 1 + (self._looks - since) // _PARTS_OF_TIME
            if block.is_watched:
                kept.append((since, look_at, block))
            else:
                check(LIBRARY.vdnn_stash_note_held(self._pointer, block.handle, 0))
        self._watched = kept

    def _bytes_in_use(self) -> int:
        """Returns the bytes in use, 0 if unknown. Also tells the stash the peak since the last call."""
        peak, now = self._memory()
        check(LIBRARY.vdnn_stash_note_peak(self._pointer, max(0, peak)))
        return max(0, now)

    def _put_what_nobody_holds(self) -> int:
        answers = 0
        while self._deferred and self._deferred[0][0] <= self._saves:
            block = heapq.heappop(self._deferred)[2]
            if not block.is_deferred or not block.users:
                continue  # the block was put or dropped in the meantime
            if block.held_by_others() is not None:
                self._defer(block)
            elif block.is_unchanged():
                answers |= self._put(block, block.source)
        return answers

    def _defer(self, block: Block) -> None:
        block.is_deferred = True
        look_at = self._saves + 1 + (self._saves - block.saved_at) // _PARTS_OF_AGE
        heapq.heappush(self._deferred, (look_at, next(self._ranks), block))

    def _read(self, block: Block) -> torch.UntypedStorage:
        if not block.puts:
            return block.source
        self._note_who_let_go()
        stream = self._stream()
        held = block.held_by_others()
        check(LIBRARY.vdnn_stash_read(
            self._pointer, block.handle, stream, self._bytes_in_use(), held is not None, byref(self._answer)))  # fmt: skip
        answer = self._answer.value
        if answer & _library.FETCHES:
            self._fetch(block, stream)
        if answer & _library.MISSING:
            check(LIBRARY.vdnn_stash_ready(self._pointer, block.handle, stream))
        found = (block.source or held) if answer & _library.IN_PLACE else block.target
        assert found is not None, "the stash serves a tensor from memory that nobody holds"
        if not answer & _library.IN_PLACE and block.target_stream != stream:
            self._keep_from_reuse(found)
        if answer & _library.LAST:
            block.target = None
        return found

    def _fetch(self, reading: Block, stream: int | None) -> None:
        full = True
        while full:
            check(LIBRARY.vdnn_stash_fetches(
                self._pointer, reading.handle, self._handles, self._sizes, BATCH, byref(self._count)))  # fmt: skip
            count = self._count.value
            full = count == BATCH
            for handle in self._handles[:count]:
                block = self._by_handle[handle]
                try:
                    target = torch.empty(block.bytes, dtype=torch.uint8, device=self.device)
                except torch.cuda.OutOfMemoryError:
                    if block is reading:
                        raise
                    return  # this tensor and the remaining ones come back when they are read
                block.target = target.untyped_storage()
                block.target_stream = stream
                check(LIBRARY.vdnn_stash_fetch(self._pointer, handle, block.target.data_ptr(), stream))

    def _note_saver(self, block: Block, storage: torch.UntypedStorage, stream: int) -> None:
        """Tells the allocator which streams saved the source. The hooks free the source before backward, while these streams
        may still use it."""
        block.savers[stream] = torch.cuda.current_stream(self.device)
        if block.leaves:
            self._record_stream(storage, block.savers[stream])

    def _keep_from_reuse(self, target: torch.UntypedStorage) -> None:
        """Tells the allocator that the current stream reads the target, which was allocated on another stream."""
        self._record_stream(target, torch.cuda.current_stream(self.device))

    def _record_stream(self, storage: torch.UntypedStorage, stream: torch.cuda.Stream) -> None:
        """Calls record_stream(). Does nothing for the stream on which the memory was allocated."""
        torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage).record_stream(stream)

    def _follow(self, answer: int, stream: int | None) -> None:
        if answer & _library.LEAVING:
            answer |= self._let_leave(stream)
        if answer & _library.RELEASED:
            for handles in self._batches(LIBRARY.vdnn_stash_released, stream):
                for handle in handles:
                    if block := self._by_handle.get(handle):
                        block.release_source()
        left_at_once = self._offload_stream is not None and answer & _library.LEAVES
        if left_at_once or answer & _library.RELEASED:
            self._restart_peak()  # the freed sources count at this save, but not at the next event

    def _let_leave(self, stream: int | None) -> int:
        answers = 0
        for handles in self._batches(LIBRARY.vdnn_stash_leaving):
            for handle in handles:
                block = self._by_handle[handle]
                if block.held_by_others() is not None or not block.is_unchanged():
                    check(LIBRARY.vdnn_stash_stay(self._pointer, handle))
                    continue
                check(LIBRARY.vdnn_stash_leave(self._pointer, handle, stream, byref(self._answer)))
                self._release_at_put(block, self._answer.value)
                answers |= self._answer.value
        return answers

    def _release_at_put(self, block: Block, answer: int) -> None:
        """Frees the source of a leaving tensor at once if vdnn's pool orders the memory's reuse after the offload stream.
        Otherwise keeps the source."""
        if answer & _library.VERDICT != _library.LEAVES:
            return
        block.leaves = True
        for stream in block.savers.values():
            self._record_stream(block.source, stream)
        if self._offload_stream is None:
            return
        if _pool.use_on(block.source.data_ptr(), self._offload_stream):
            block.release_source()
        else:
            check(LIBRARY.vdnn_stash_hold(self._pointer, block.handle))

    def _batches(self, ask: Any, *arguments: Any) -> Iterator[list[int]]:
        """The handles that vdnn_stash_leaving() or vdnn_stash_released() returns. It is called again once all handles of a batch
        have been answered."""
        full = True
        while full:
            check(ask(self._pointer, *arguments, self._handles, BATCH, byref(self._count)))
            full = self._count.value == BATCH
            yield self._handles[: self._count.value]

    def _drain(self) -> None:
        # A thread that holds the lock drains after it releases the lock, so no drop is forgotten.
        while self._dropped and self._lock.acquire(blocking=False):
            try:
                while self._dropped:
                    self._end_put(self._dropped.popleft())
            finally:
                self._lock.release()

    def _end_put(self, block: Block) -> None:
        if block.puts == block.users:
            LIBRARY.vdnn_stash_drop(self._pointer, block.handle)
            block.puts -= 1
        block.users -= 1
        if block.users == 0:
            if block.is_watched:
                self._watched = [each for each in self._watched if each[2] is not block]
            self._by_handle.pop(block.handle, None)
            del self._blocks[block.key]
            block.release_source()
            block.target = None


class PythonHooks:
    """The hooks `pack` and `unpack` for all devices of one type."""

    tier = "python"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._device_type = settings.device_type
        self._min_bytes = settings.min_bytes
        self._stashes: dict[torch.device, DeviceStash] = {}
        self._are_parents = False
        self._threads: list[int] = []  # ids of threads that have started the hooks, one entry per start
        self._making = threading.Lock()

    def stashes(self) -> dict[str, NativeStash]:
        return {str(device): stash.native for device, stash in sorted(self._stashes.items(), key=lambda item: str(item[0]))}

    def start(self) -> None:
        torch._C._autograd._push_saved_tensors_default_hooks(self.pack, self.unpack)
        self._threads.append(threading.get_ident())

    def stop(self) -> None:
        """Raises RuntimeError on a thread that has not started the hooks."""
        thread = threading.get_ident()
        if thread not in self._threads:
            raise RuntimeError('vdnn.torch: tier "python" serves the thread that has enabled it, and is disabled there')
        torch._C._autograd._pop_saved_tensors_default_hooks()
        self._threads.remove(thread)

    def leave_to_parent(self) -> None:
        self._are_parents = True

    def pack(self, tensor: torch.Tensor) -> Saved | tuple[torch.Tensor, int]:
        if type(tensor) in _PLAIN_TYPES and self._may_leave(tensor) and not self._are_parents:
            storage = tensor.untyped_storage()
            if storage.nbytes() >= self._min_bytes and (saved := self._stash_of(tensor.device).save(tensor, storage)):
                return saved
        # As PyTorch saves it: a leaf itself, with its class and attributes; other tensors detached, to avoid a reference cycle.
        return tensor if tensor.is_leaf else tensor.detach(), tensor._version

    def unpack(self, packed: Saved | tuple[torch.Tensor, int]) -> torch.Tensor:
        if type(packed) is Saved:
            return packed.stash.load(packed)
        tensor, version = packed
        if tensor._version != version:
            refuse_changed_tensor(tensor.type(), tensor.shape, tensor._version, version)
        return tensor

    def _may_leave(self, tensor: torch.Tensor) -> bool:
        if tensor.layout is not torch.strided or tensor.nbytes < self._min_bytes or tensor.device.type != self._device_type:
            return False
        if tensor.is_nested or tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():
            return False
        base = tensor._base if tensor._is_view() else tensor
        return not (base.is_leaf and base.requires_grad)  # a parameter, or a view of one

    def _stash_of(self, device: torch.device) -> DeviceStash:
        stash = self._stashes.get(device)
        if stash is None:
            with self._making:
                stash = self._stashes.get(device) or DeviceStash(device, self._settings)
                self._stashes = {**self._stashes, device: stash}  # a new dict, since other threads may iterate over the old one
        return stash
