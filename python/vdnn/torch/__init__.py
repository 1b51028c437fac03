"""Trains any PyTorch program inside a memory budget.

    import vdnn.torch
    vdnn.torch.enable(budget="10GiB")        # or: with vdnn.torch.offload(budget="10GiB"): loss = model(x)

Tensors that autograd saves for backward leave the GPU on a separate stream while they are not needed. They come back before
they are read. In the first step vdnn learns which tensors are saved and when they are read. From the second step on, a plan for
the budget decides which tensors leave. Results stay equal to the bit. docs/torch.md explains the tiers, the limits and the
costs.
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
_made: dict[Settings, Hooks] = {}  # never removed, so that settings keep their learned steps
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
    """From now on, tensors that autograd saves leave the device as far as the budget requires.

    budget: limit for all tensors of a device ("10GiB", or bytes). 0: every eligible tensor leaves. May be omitted after
        use_pool(budget=...); the limit is then 10/11 of that budget, since a pool holds up to 10 % more than its blocks.
    host_budget: limit for page-locked host memory per GPU. None: half of the machine's memory (or of the control group's limit),
        divided by the number of the machine's GPUs or of the ranks that torchrun started on it, whichever is larger. Once this
        memory is exhausted, tensors stay on the device.
    tier: "native" (C++ hooks, all threads; compiled on first use), "python" (any PyTorch, the calling thread only), or
        "auto": native if possible, else python with one line of log.
    min_size: smaller tensors stay on the device.
    window: limit in bytes both for tensors on their way out and for tensors that are back before they are read. None: the two
        largest tensors of the step. A smaller window saves memory and leaves less time for copies.

    Raises RuntimeError if vdnn.torch is enabled already, ValueError or TypeError for an invalid option.
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
    """Ends enable(). Tensors that were saved earlier can still be read while their graphs live. Does nothing if vdnn.torch is
    not enabled."""
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
    """Like enable(), but only for tensors saved inside the `with` block; backward may run outside it. Blocks with equal options
    share learned steps."""
    hooks = _hooks_of(make_settings(budget, host_budget, tier, min_size, window))
    hooks.start()
    try:
        yield
    finally:
        hooks.stop()


def _leave_to_parent() -> None:
    """Runs in a child of fork(), for example a DataLoader worker. Tensors stay on the device until the child enables vdnn.torch
    itself."""
    global _lock, _enabled, _last
    _lock = threading.RLock()  # a thread of the parent may have held the old lock
    for hooks in _made.values():
        hooks.leave_to_parent()
    _made.clear()
    _enabled = _last = None


os.register_at_fork(after_in_child=_leave_to_parent)


def report(*, quiet: bool = False) -> Report:
    """Returns the traffic of the hooks that were started last, per device, and prints it unless `quiet`."""
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

    The step is that of the hooks that were started last. Export after at least two steps, since the optimizer creates its state
    in the first one. The file is replaced as a whole, or left unchanged.

    batch: samples of the step. `vdnn max-batch` and `--batch` need it. program: a name for readers. None: the script's name.
    device: for example "cuda:1". May be omitted if only one device's tensors were saved.

    Raises TypeError or ValueError for an invalid argument, RuntimeError if no step was learned yet, and OSError if the file
    cannot be written.
    """
    samples, name, target = _export.checked_batch(batch), _export.checked_program(program), _export.checked_target(path)
    step = _export.learned_step_of(_last, device)
    _export.write_atomically(target, _export.text_of(step, samples, name))
