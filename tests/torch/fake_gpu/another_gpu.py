"""Reads saved tensors of the second of two GPUs while the first is the current one: another_gpu.py TIER. Prints their device
and whether they have their values."""

import os
import sys

import torch

import vdnn.torch


def main():
    x = torch.randn(64, 64).to("cuda:1").requires_grad_()
    with vdnn.torch.offload(budget=0, min_size=1, tier=sys.argv[1]):
        y = (x * 1).sin()
        z = y
        for _ in range(8):  # so that the first tensor leaves
            z = z.sin()
    torch.cuda.set_device(0)
    saved = y.grad_fn._saved_self
    print(saved.device, torch.equal(saved.cpu(), x.detach().cpu()), flush=True)
    # PyTorch's threads may still be running.
    os._exit(0)


if __name__ == "__main__":
    main()
