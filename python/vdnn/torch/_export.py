"""The learned step as a file that `vdnn plan`, `sweep` and `max-batch` read (docs/learned_step.schema.json)."""

from __future__ import annotations

import json
import operator
import os
import pathlib
import sys
from typing import Any

import torch

from ._hooks import Hooks
from ._library import StashError

_MOST_SAMPLES = (1 << 63) - 1


def checked_batch(batch: int | None) -> int | None:
    if batch is None:
        return None
    try:
        if isinstance(batch, bool):
            raise TypeError
        samples = operator.index(batch)
    except TypeError:
        raise TypeError(f"batch is {batch!r}: it must be the number of samples of the step") from None
    if not 1 <= samples <= _MOST_SAMPLES:
        raise ValueError(f"batch is {batch!r}: a step has at least one sample, and at most {_MOST_SAMPLES}")
    return samples


def checked_program(program: str | None) -> str:
    """`program`, or the script's name if it is None."""
    if program is None:
        script = os.path.basename(sys.argv[0]) if sys.argv else ""
        program = "a program in PyTorch" if script in ("", "-c", "-m") else script
    if not isinstance(program, str):
        raise TypeError(f"program is {program!r}: it must be a name")
    if not program:
        raise ValueError("program is empty: it must be a name")
    return program.encode(errors="replace").decode()


def checked_target(path: str | os.PathLike[str]) -> pathlib.Path:
    """The absolute path of the file. Raises OSError if the file cannot be written there."""
    target = pathlib.Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise IsADirectoryError(f"the learned step cannot be written: {os.fspath(path)!r} is not a regular file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the learned step cannot be written: there is no folder {str(target.parent)!r}")
    return target


def learned_step_of(hooks: Hooks | None, device: str | torch.device | None) -> dict[str, Any]:
    """The step that was learned last on `device`. The batch and the names, which only the program knows, are missing."""
    stashes = hooks.stashes() if hooks else {}
    if not stashes:
        raise RuntimeError("no step was learned: enable vdnn.torch and train one step, forward and backward")
    if device is None and len(stashes) > 1:
        raise ValueError(f"steps were learned on {', '.join(stashes)}: name one with device=")
    name = next(iter(stashes)) if device is None else _name_of(device)
    if name not in stashes:
        raise ValueError(f"no step was learned on {name}, but on {', '.join(stashes)}")
    try:
        step = json.loads(stashes[name].learned_step())
    except StashError:
        raise RuntimeError(f"no step was learned on {name} yet: a step ends once its graph has been released") from None
    if name != "cpu":
        step["device"] = torch.cuda.get_device_name(name)
    return step


def _name_of(device: str | torch.device) -> str:
    found = torch.device(device)
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", torch.cuda.current_device())
    return str(found)


def text_of(step: dict[str, Any], batch: int | None, program: str) -> str:
    """Writes one event per line, so that people can read and compare such files."""
    step = step | {"program": program, "framework": f"PyTorch {torch.__version__.partition('+')[0]}"}
    if batch is not None:
        step["batch"] = batch
    order = ("schema", "type", "program", "framework", "device", "batch", "seconds", "peak_bytes")
    lines = [f"  {json.dumps(key)}: {json.dumps(step[key])}" for key in order if key in step]
    events = ",\n".join("    " + json.dumps(event, separators=(",", ":")) for event in step["events"])
    return "{\n" + ",\n".join(lines) + ',\n  "events": [\n' + events + "\n  ]\n}\n"


def write_atomically(target: pathlib.Path, text: str) -> None:
    """Replaces the file so that readers find either the old file or the whole new file."""
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
    except OSError as error:
        raise type(error)(f"the learned step cannot be written to {str(target)!r}: {error.strerror}") from error
    finally:
        new.unlink(missing_ok=True)  # the file exists only after a failure
