"""The binary of tier "native": compiled from the sources beside this file for the PyTorch that is installed.

    python3 -m vdnn.torch.door        # compiles it ahead of the first use and prints where it is

One binary fits one minor version of PyTorch. It lies in a cache folder (XDG_CACHE_HOME, else ~/.cache) under a name that
tells the version and the sources apart. It is linked with libtorch_cpu and libc10 only.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import torch

_FOLDER = pathlib.Path(__file__).parent
_TORCH = pathlib.Path(torch.__file__).parent
_SECONDS = 600


class CannotBuild(Exception):
    """There is no binary for this PyTorch; the text says why."""


def _headers() -> pathlib.Path:
    """Where vdnn/stash.h is: in the wheel, or in the source tree."""
    for folder in (_FOLDER.parent / "include", _FOLDER.parents[3] / "include"):
        if (folder / "vdnn/stash.h").exists():
            return folder
    raise CannotBuild(f"vdnn/stash.h is neither in {_FOLDER.parent / 'include'} nor in a source tree")


# Virtual functions that not every supported version has: the header that declares them. The sources ask for VDNN_HAS_ and the
# name in capitals.
_NEWER_FUNCTIONS = {
    "get_node_creation_hooks": "engine.h",
    "retrieve_unpack_hook_data": "saved_variable_hooks.h",
}


def _flags() -> list[str]:
    includes = _TORCH / "include"
    autograd = includes / "torch/csrc/autograd"
    if not autograd.is_dir():
        raise CannotBuild(f"this PyTorch has no headers: {autograd} is missing")
    flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{_headers()}", f"-I{includes}"]
    flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}")
    for function, header in _NEWER_FUNCTIONS.items():
        if function in (autograd / header).read_text():
            flags.append(f"-DVDNN_HAS_{function.upper()}")
    return flags


def _sources() -> list[pathlib.Path]:
    return sorted(_FOLDER.glob("*.cpp"))


def _binary(flags: list[str]) -> pathlib.Path:
    content = hashlib.sha256(" ".join(flags).encode())
    for source in sorted([*_FOLDER.glob("*.cpp"), *_FOLDER.glob("*.h"), _headers() / "vdnn/stash.h"]):
        content.update(source.read_bytes())
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return cache / "vdnn" / f"door-{torch.__version__}-{content.hexdigest()[:16]}.so"


def _compile(flags: list[str], binary: pathlib.Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise CannotBuild("no C++ compiler was found (CXX names one)")
    libraries = _TORCH / "lib"
    # PyTorch's own libraries need others, which are of no concern here.
    link = [f"-L{libraries}", "-ltorch_cpu", "-lc10", "-ldl", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    binary.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: several processes may compile at once, and half a binary would look like one.
    with tempfile.TemporaryDirectory(dir=binary.parent) as scratch:
        made = pathlib.Path(scratch, binary.name)
        command = [compiler, *flags, *map(str, _sources()), "-o", str(made), *link]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotBuild(f"{compiler}: {error}") from None
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise CannotBuild(f"{compiler} refuses the hooks: {(errors or ['status ' + str(done.returncode)])[0]}")
        os.replace(made, binary)


def build() -> pathlib.Path:
    """The binary for this PyTorch, compiled now if it is not in the cache. Raises CannotBuild."""
    flags = _flags()
    binary = _binary(flags)
    if not binary.exists():
        try:
            _compile(flags, binary)
        except OSError as error:
            raise CannotBuild(f"the cache folder {binary.parent} cannot be written: {error}") from None
    return binary
