"""Runs a Python program on the fake GPU: on_fake_gpu.py STAND-INS OPERATORS PROGRAM [OPTION...]. Libraries are separated by ":"."""

import os
import runpy
import sys

import fake_gpu


def main():
    fake_gpu.load(sys.argv[1].split(os.pathsep))
    import torch

    fake_gpu.compute(sys.argv[2])
    del sys.argv[:3]
    runpy.run_path(sys.argv[0], run_name="__main__")
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
