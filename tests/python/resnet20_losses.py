"""Fifty steps of resnet20 on Fashion-MNIST, trained again with PyTorch on the CPU, in fp32 and under bf16 autocast.

  resnet20_losses.py DIRECTORY [--svg FILE]

DIRECTORY holds the files of tests/reference/resnet20_losses.cpp: weights, batches, and vdnn's losses. PyTorch starts from
the same weights, with the same batches and the same update rule. The script prints the losses of all steps and, with
--svg, draws them.

Training magnifies rounding: two runs that differ in the last bit of one number diverge after some steps. After thirty
steps, PyTorch's fp32 differs from its own double precision as much as from vdnn's fp32. The script measures the effect of
rounding as the largest difference between PyTorch's fp32 and bf16. vdnn's fp32 and bf16 may differ from PyTorch's by twice
that, since rounding can move the two runs in opposite directions. In fp32 the first step, before any magnification, agrees
to FIRST_STEP.
"""

import argparse
import pathlib
import sys

import torch
import torch.nn.functional as F

import loss_plot
from resnet20 import read, resnet20

LEARNING_RATE = 0.02
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
STATISTICS = ("running_mean", "running_variance")
LEAST_DIFFERENCE = 1e-8  # drawn if losses are equal
FIRST_STEP = 1e-4  # relative, as in resnet20_check.py
LEARNED = 2 / 3  # the mean of the last five losses must be below this part of the first loss


def losses_of_pytorch(before, batches, in_bf16):
    p = {name: tensor.clone() for name, tensor in before.items() if not name.endswith(".momentum")}
    trained = [tensor.requires_grad_() for name, tensor in p.items() if not name.endswith(STATISTICS)]
    optimizer = torch.optim.SGD(trained, LEARNING_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY)
    losses = []
    for images, targets in zip(batches["images"], batches["targets"].long()):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bf16):
            logits = resnet20(p, images, training=True)
        if logits.dtype != (torch.bfloat16 if in_bf16 else torch.float32):
            sys.exit(f"PyTorch's logits are {logits.dtype}")
        loss = F.cross_entropy(logits.float(), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def differences(some, others):
    return [max(abs(a - b), LEAST_DIFFERENCE) for a, b in zip(some, others)]


def print_losses(losses):
    print("step  " + "  ".join(f"{name:>12}" for name in losses))
    for step, row in enumerate(zip(*losses.values()), 1):
        print(f"{step:4}  " + "  ".join(f"{loss:12.5f}" for loss in row))


def violations(losses, largest):
    bound = 2 * largest["PyTorch bf16 - PyTorch fp32"]
    for name in ("vdnn fp32 - PyTorch fp32", "vdnn bf16 - PyTorch bf16"):
        if not largest[name] <= bound:
            yield f"{name}: {largest[name]:.5f} is more than {bound:.5f}"
    ours, theirs = losses["vdnn fp32"][0], losses["PyTorch fp32"][0]
    if not abs(ours - theirs) <= FIRST_STEP * theirs:
        yield f"the first loss in fp32 is {ours} here and {theirs} with PyTorch"
    for name, values in losses.items():
        if not sum(values[-5:]) / 5 < LEARNED * values[0]:
            yield f"{name} learns too little: from {values[0]:.3f} to {values[-5:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--svg", type=pathlib.Path)
    options = parser.parse_args()
    before, batches, ours = (read(options.directory / f"{name}.safetensors") for name in ("before", "batches", "losses"))
    losses = {"vdnn fp32": ours["fp32"].tolist(), "PyTorch fp32": losses_of_pytorch(before, batches, in_bf16=False),
              "vdnn bf16": ours["bf16"].tolist(), "PyTorch bf16": losses_of_pytorch(before, batches, in_bf16=True)}
    pairs = (("vdnn fp32", "PyTorch fp32"), ("vdnn bf16", "PyTorch bf16"), ("PyTorch bf16", "PyTorch fp32"),
             ("vdnn bf16", "vdnn fp32"))
    apart = {f"{one} - {other}": differences(losses[one], losses[other]) for one, other in pairs}
    print_losses(losses)
    largest = {name: max(values) for name, values in apart.items()}
    print(f"PyTorch {torch.__version__}; largest difference over {len(losses['vdnn fp32'])} steps:")
    for name, value in largest.items():
        print(f"  {name}: {value:.5f}")
    if options.svg:
        options.svg.write_text(loss_plot.picture(losses, apart))
    bad = list(violations(losses, largest))
    print("\n".join(bad) or "the losses agree up to rounding")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
