"""PyTorch on the stand-in for CUDA, in this process: call load() before torch is imported and compute() after it.

The stand-in's libraries have the names with which PyTorch's libraries are linked, and the loader reuses libraries that are
already loaded. So any PyTorch for CUDA runs on them, without a special environment. Environment variables are their settings
(tests/fakes/cudart/stand_in.h).
"""

import ctypes
import hashlib
import importlib.util
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


class Unavailable(Exception):
    """The reason why the tests cannot run."""


def torch_folder():
    found = importlib.util.find_spec("torch")
    if found is None:
        raise Unavailable("there is no PyTorch")
    return pathlib.Path(found.origin).parent


def load(stand_ins):
    for library in stand_ins:
        ctypes.CDLL(str(library))


def compute(operators):
    """Makes CUDA's operators compute; without this call they are launches that do nothing."""
    import torch

    torch.backends.cudnn.enabled = False  # its fused operators have no twin on the CPU
    torch.cuda.init()
    if ctypes.CDLL(str(operators)).vdnn_fake_gpu_take_over() == 0:
        raise RuntimeError("no operator computes")


def build_operators(folder, runtime, cuda_headers):
    """Compiles operators.cpp for this Python's PyTorch, once per version of operators.cpp and of PyTorch."""
    torch = torch_folder()
    if not (torch / "lib" / "libc10_cuda.so").is_file():
        raise Unavailable("this PyTorch is built without CUDA")
    sources = [HERE / "operators.cpp", ROOT / "tests" / "fakes" / "cudart" / "declared_launch.h"]
    state = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, torch / "version.py"])).hexdigest()[:16]
    library = pathlib.Path(folder) / state / "liboperators.so"
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        new = library.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [
                *("g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-w"),
                f"-I{ROOT}",
                *(f"-isystem{path}" for path in (torch / "include", torch / "include/torch/csrc/api/include", cuda_headers)),
                *(str(sources[0]), "-o", str(new)),
                *(f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10", "-lc10_cuda", str(runtime)),
                "-Wl,--unresolved-symbols=ignore-in-shared-libs",
            ],
            check=True,
        )
        new.rename(library)
    return library
