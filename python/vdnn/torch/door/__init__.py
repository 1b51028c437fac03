"""The binary of tier "native", compiled from the sources beside this file for the installed PyTorch.

    python3 -m vdnn.torch.door        # compiles it ahead of the first use and prints where it is

One binary fits one version of PyTorch. A cache folder (XDG_CACHE_HOME, else ~/.cache) contains it, under a name that identifies
PyTorch's version and our sources. The binary is used only if its seal shows that it is complete and made from that version and
these sources. One process compiles the binary while other processes wait. A binary gets its name only once it is complete. Of
PyTorch's libraries, it is linked only with libtorch_cpu and libc10.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator

import torch

from ._sealed import is_sealed, seal

_FOLDER = pathlib.Path(__file__).parent
_TORCH = pathlib.Path(torch.__file__).parent
_HEADERS = ("vdnn/stash.h", "vdnn/allocator.h")
_SECONDS = 600


class CannotBuild(Exception):
    """There is no binary for this PyTorch; the text gives the reason."""


def _include_folder() -> pathlib.Path:
    """The folder that contains vdnn/stash.h, in the wheel or in the source tree."""
    for folder in (_FOLDER.parent / "include", _FOLDER.parents[3] / "include"):
        if (folder / "vdnn/stash.h").exists():
            return folder
    raise CannotBuild(f"vdnn/stash.h is neither in {_FOLDER.parent / 'include'} nor in a source tree")


# Functions that some supported versions lack, with the headers that declare them. If a function exists, the macro VDNN_HAS_
# with its name in capitals is defined.
_NEWER_FUNCTIONS = {
    "get_node_creation_hooks": "torch/csrc/autograd/engine.h",
    "retrieve_unpack_hook_data": "torch/csrc/autograd/saved_variable_hooks.h",
    "getDeviceAllocator": "c10/core/CachingDeviceAllocator.h",
}


def _flags() -> list[str]:
    includes = _TORCH / "include"
    if not (includes / "torch/csrc/autograd/engine.h").exists():
        raise CannotBuild(f"this PyTorch has no headers: {includes}/torch/csrc/autograd/engine.h is missing")
    flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{_include_folder()}", f"-I{includes}"]
    flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}")
    for function, header in _NEWER_FUNCTIONS.items():
        if (includes / header).exists() and function in (includes / header).read_text():
            flags.append(f"-DVDNN_HAS_{function.upper()}")
    return flags


def _sources() -> list[pathlib.Path]:
    return sorted(_FOLDER.glob("*.cpp"))


def _identity(flags: list[str]) -> bytes:
    """A digest of everything from which the binary is made."""
    content = hashlib.sha256("\n".join([torch.__version__, *flags]).encode())
    for source in [*_sources(), *sorted(_FOLDER.glob("*.h")), *(_include_folder() / name for name in _HEADERS)]:
        content.update(source.read_bytes())
    return content.digest()


def _cache_folder() -> pathlib.Path:
    try:
        return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "vdnn")
    except RuntimeError as error:  # there is no home directory
        raise CannotBuild(f"no cache folder: {error} Set XDG_CACHE_HOME to a folder") from None


def _compiler() -> list[str]:
    command = shlex.split(os.environ.get("CXX", ""))
    found = command or [path for path in (shutil.which("c++"), shutil.which("g++")) if path][:1]
    if not found:
        raise CannotBuild("no C++ compiler was found (set CXX to one)")
    return found


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The line of a compiler's output that best explains its failure."""
    lines = [line for line in done.stderr.splitlines() if "error" in line or "cannot find" in line]
    return lines[0] if lines else f"status {done.returncode}"


@contextlib.contextmanager
def _alone(binary: pathlib.Path) -> Iterator[None]:
    """Admits one process at a time if the file system has locks; otherwise each process compiles for itself."""
    with open(f"{binary}.lock", "w") as lock:
        left_over: Iterable[pathlib.Path] = ()
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
            left_over = binary.parent.glob(f"{binary.name}.*.scratch")  # left by processes that were killed while they compiled
        for scratch in left_over:
            shutil.rmtree(scratch, ignore_errors=True)
        yield


def _compile(flags: list[str], binary: pathlib.Path, identity: bytes) -> None:
    compiler = _compiler()
    libraries = _TORCH / "lib"
    # PyTorch's libraries need other libraries, whose symbols may stay unresolved here.
    link = [f"-L{libraries}", "-ltorch_cpu", "-lc10", "-ldl", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    with tempfile.TemporaryDirectory(dir=binary.parent, prefix=f"{binary.name}.", suffix=".scratch") as scratch:
        made, sealed = pathlib.Path(scratch, "compiled.so"), pathlib.Path(scratch, "sealed.so")
        command = [*compiler, *flags, *map(str, _sources()), "-o", str(made), *link]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = error.strerror if isinstance(error, OSError) else f"not finished after {_SECONDS} s"
            raise CannotBuild(f"{compiler[0]}: {reason}") from None
        if done.returncode != 0 or not made.exists():
            raise CannotBuild(f"{compiler[0]} cannot compile the hooks: {_reason(done)}")
        sealed.write_bytes(seal(made.read_bytes(), identity))
        os.replace(sealed, binary)


def build() -> pathlib.Path:
    """The path of the binary for this PyTorch, compiled now if it is not in the cache. Raises CannotBuild."""
    flags = _flags()
    identity = _identity(flags)
    binary = _cache_folder() / f"door-{torch.__version__}-{identity.hex()[:16]}.so"
    try:
        if not is_sealed(binary, identity):
            binary.parent.mkdir(parents=True, exist_ok=True)
            with _alone(binary):
                if not is_sealed(binary, identity):  # else another process has compiled it in the meantime
                    _compile(flags, binary, identity)
    except OSError as error:
        raise CannotBuild(f"the cache folder {binary.parent} cannot be used (set XDG_CACHE_HOME): {error}") from None
    return binary
