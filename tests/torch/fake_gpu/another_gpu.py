"""Reads saved tensors of the second of two GPUs while the first is the current one: another_gpu.py TIER. Prints their device,
whether they have their values, and whether tensors left and came back."""

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
    has_values = torch.equal(saved.cpu(), x.detach().cpu())
    figures = vdnn.torch.report(quiet=True).devices["cuda:1"]
    print(saved.device, has_values, figures["left"] > 0 and figures["in_bytes"] > 0, flush=True)
    # PyTorch's threads may still be running.
    os._exit(0)


if __name__ == "__main__":
    main()
