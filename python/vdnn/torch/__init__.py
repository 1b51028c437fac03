"""Any PyTorch program trains inside a memory budget.

    import vdnn.torch
    vdnn.torch.enable(budget="10GiB")        # or: with vdnn.torch.offload(budget="10GiB"): loss = model(x)

Tensors that autograd saves for backward leave the GPU while they are not needed, on a stream of their own, and come back
before they are read. The first step learns what is saved and when it is read; from the second step on a plan for the budget
decides what leaves. Results stay equal to the bit. docs/torch.md explains the tiers, the limits and the costs.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import torch

from . import _export, _report
from ._hooks import Hooks, make_hooks
from ._library import StashError
from ._memory import measure_memory, peak_memory, reset_peak_memory
from ._pool import use_pool
from ._report import Report
from ._settings import Settings, make_settings
from ._sizes import parse_size

__all__ = [
    "Report",
    "StashError",
    "disable",
    "enable",
    "export",
    "measure_memory",
    "offload",
    "parse_size",
    "peak_memory",
    "report",
    "reset_peak_memory",
    "use_pool",
]

_lock = threading.RLock()
_made: dict[Settings, Hooks] = {}  # for the life of the process: what was learned stays with its settings
_enabled: Hooks | None = None
_last: Hooks | None = None


def _hooks_of(settings: Settings) -> Hooks:
    global _last
    with _lock:
        hooks = _made.get(settings)
        if hooks is None:
            hooks = _made[settings] = make_hooks(settings)
        _last = hooks
        return hooks


def enable(
    *,
    budget: int | str | None = None,
    host_budget: int | str | None = None,
    tier: str = "auto",
    min_size: int | str = "1MiB",
    window: int | str | None = None,
) -> None:
    """From now on tensors that autograd saves leave the device where that is needed to keep it within `budget`.

    budget: for all tensors of a device ("10GiB", or bytes). 0: every eligible tensor leaves. May be left out after
        use_pool(budget=...): ten elevenths of that, since a pool holds up to a tenth more than its blocks.
    host_budget: for page-locked memory on the host, for each GPU; None: half of the machine's memory (or of the control group's),
        divided by the processes that torchrun started on it or by its GPUs, whichever are more. Once it is exhausted, tensors stay.
    tier: "native" (C++ hooks, all threads; compiled on first use), "python" (any PyTorch, the calling thread only), or
        "auto": native where it can be had, else one line of log and python.
    min_size: smaller tensors stay.
    window: bytes on their way out, and bytes that are back before they are read, each at most. None: the two largest tensors of
        the step. A smaller window saves memory and leaves less time for copies.

    Raises RuntimeError if it is enabled already, ValueError and TypeError for an option that cannot be.
    """
    global _enabled
    settings = make_settings(budget, host_budget, tier, min_size, window)
    with _lock:
        if _enabled is not None:
            raise RuntimeError("vdnn.torch is enabled already; call vdnn.torch.disable() first")
        hooks = _hooks_of(settings)
        hooks.start()
        _enabled = hooks


def disable() -> None:
    """Ends enable(). Tensors that were saved before are served as long as their graphs live. Nothing if not enabled."""
    global _enabled
    with _lock:
        if _enabled is not None:
            _enabled.stop()
            _enabled = None


@contextlib.contextmanager
def offload(
    *,
    budget: int | str | None = None,
    host_budget: int | str | None = None,
    tier: str = "auto",
    min_size: int | str = "1MiB",
    window: int | str | None = None,
) -> Iterator[None]:
    """enable() for what is saved inside the block; backward may run outside. Blocks with equal options learn together."""
    hooks = _hooks_of(make_settings(budget, host_budget, tier, min_size, window))
    hooks.start()
    try:
        yield
    finally:
        hooks.stop()


def _leave_to_parent() -> None:
    """In a child of fork(), for example a worker of a DataLoader: tensors stay until the child enables vdnn.torch itself."""
    global _lock, _enabled, _last
    _lock = threading.RLock()  # a thread of the parent may have had it
    for hooks in _made.values():
        hooks.leave_to_parent()
    _made.clear()
    _enabled = _last = None


os.register_at_fork(after_in_child=_leave_to_parent)


def report(*, quiet: bool = False) -> Report:
    """Returns what the hooks that were started last have moved, per device, and prints it unless `quiet`."""
    made = _report.report_of(_last)
    if not quiet:
        print(made)
    return made


def export(
    path: str | os.PathLike[str],
    *,
    batch: int | None = None,
    program: str | None = None,
    device: str | torch.device | None = None,
) -> None:
    """Writes the step that was learned last as JSON (docs/learned_step.schema.json), which `vdnn plan --step` reads.

    The step is of the hooks that were started last. Its figures are best once two steps have ended: in the first one the
    optimizer makes its state. The file is replaced as a whole, or left as it was.

    batch: samples of the step. `vdnn max-batch` and `--batch` need it.
    program: a name for people; None: that of the script.
    device: "cuda:1"; may be left out where tensors of one device only were saved.

    Raises TypeError or ValueError for an argument that cannot be, RuntimeError before a step was learned, and OSError where
    the file cannot be written.
    """
    samples, name, target = _export.checked_batch(batch), _export.checked_program(program), _export.checked_target(path)
    step = _export.learned_step_of(_last, device)
    _export.write_atomically(target, _export.text_of(step, samples, name))
