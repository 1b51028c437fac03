"""Mistakes in the tiers themselves: a copy of python/vdnn with one changed place. A place that no longer exists is an error,
so that no mutant silently becomes the original code."""

import dataclasses
import hashlib
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[3]
PYTHON_HOOKS, DEVICE_STASH, SAVED_TENSOR = "_python_hooks.py", "door/device_stash.cpp", "door/saved_tensor.cpp"


@dataclasses.dataclass(frozen=True)
class TierMutant:
    name: str
    tier: str
    file: str  # in vdnn/torch
    place: str
    mistake: str


MUTANTS = (
    TierMutant("ChangedTensorIsNotRefused", "python", PYTHON_HOOKS,
               "        if not block.is_unchanged():\n            kind", "        if False:\n            kind"),
    TierMutant("ReaderIsNotMadeReady", "python", PYTHON_HOOKS,
               "check(LIBRARY.vdnn_stash_ready(self._pointer, block.handle, stream))", "pass"),
    TierMutant("SourceIsReleasedAtPut", "python", PYTHON_HOOKS,
               "            block.puts += 1\n",
               "            block.puts += 1\n"
               "            if self._answer.value & _library.VERDICT == _library.LEAVES:\n                block.release_source()\n"),
    TierMutant("PoolIsNotToldOfTheOffloadStream", "python", "_pool.py",
               "    _library.vdnn_torch_record_stream(address, stream)\n", ""),
    TierMutant("StashIsNotToldOfOtherMemory", "python", PYTHON_HOOKS,
               "            check(LIBRARY.vdnn_stash_hold(self._pointer, block.handle))\n", "            pass\n"),
    TierMutant("TargetIsReusedBeforeItsReader", "python", PYTHON_HOOKS,
               "            self._keep_from_reuse(found)\n", "            pass\n"),
    TierMutant("DefaultStreamForTheCurrentOne", "python", PYTHON_HOOKS,
               "lambda: torch._C._cuda_getCurrentRawStream(device.index)", "lambda: 0"),
    TierMutant("AllocatorIsNotToldOfStreamsThatSave", "python", PYTHON_HOOKS,
               "        for stream in block.savers.values():\n", "        for stream in ():\n"),
    TierMutant("ChangeByAReaderIsNotCounted", "python", PYTHON_HOOKS,
               "        tensor.data = view\n        return tensor\n", "        return view\n"),
    TierMutant("AnotherCounterIsShared", "python", PYTHON_HOOKS,
               "            if block.root() is _root_of(tensor):\n", "            if True:\n"),
    TierMutant("AnotherCounterIsShared", "native", DEVICE_STASH, "if (!is_new && !block.has_counter_of(tensor)) {", "if (false) {"),
    TierMutant("ChangedTensorIsNotRefused", "native", SAVED_TENSOR, "if (current_version() != version_) {", "if (false) {"),
    TierMutant("ReaderIsNotMadeReady", "native", DEVICE_STASH,
               "    check(functions_.ready(stash_, block.handle, stream));\n", ""),
    TierMutant("SourceIsReleasedAtPut", "native", DEVICE_STASH,
               "    release_at_put(block, answer, trash);\n    answers |=",
               "    if ((answer & VDNN_STASH_VERDICT) == VDNN_STASH_LEAVES) {\n      trash.push_back(std::move(block.source));\n    }\n"
               "    answers |="),
    TierMutant("PoolIsNotToldOfTheOffloadStream", "native", DEVICE_STASH,
               "    pool_.record_stream(memory, offload_stream_);\n", ""),
    TierMutant("StashIsNotToldOfOtherMemory", "native", DEVICE_STASH,
               "    check(functions_.hold(stash_, block.handle));\n", ""),
    TierMutant("TargetIsReusedBeforeItsReader", "native", DEVICE_STASH,
               "    record_on_current_stream(block.target->data_ptr(), device_);\n", ""),
    TierMutant("DefaultStreamForTheCurrentOne", "native", DEVICE_STASH,
               "return device_.is_cuda() ? current_gpu_stream(device_) : nullptr;", "return nullptr;"),
    TierMutant("AllocatorIsNotToldOfStreamsThatSave", "native", DEVICE_STASH, "  note_leaving(block);\n", ""),
    TierMutant("ChangeByAReaderIsNotCounted", "native", SAVED_TENSOR,
               "  autograd::impl::set_version_counter(tensor, block_->counter);\n", ""),
)  # fmt: skip


def python_path(mutant, folder):
    """Returns the folder from which Python imports the mutant's vdnn. The folder is made anew each time. Its name depends on the
    sources, so that the binary of tier "native" is compiled once."""
    original = ROOT / "python/vdnn/torch" / mutant.file
    text = original.read_text()
    if text.count(mutant.place) != 1:
        raise AssertionError(f"{mutant}: the place is {text.count(mutant.place)} times in {original}")
    changed = text.replace(mutant.place, mutant.mistake)
    copy = pathlib.Path(folder) / f"{mutant.tier}-{mutant.name}-{hashlib.sha256(changed.encode()).hexdigest()[:8]}"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "python/vdnn", copy / "python/vdnn", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "include").symlink_to(ROOT / "include")  # where door/ looks for vdnn/stash.h
    (copy / "python/vdnn/torch" / mutant.file).write_text(changed)
    return copy / "python"
