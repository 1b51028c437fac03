"""Trains a U-Net in PyTorch inside a memory budget that PyTorch alone exceeds.

    python3 examples/pytorch_offload.py [--budget 64MiB] [--steps 6] [--tier auto]

Runs PyTorch alone in one process, then the same program with two more lines in another process. Both print the losses, which
are equal to the bit, and the peak of tensor memory. Without a GPU, PyTorch trains on the CPU, and host memory stands in for the
GPU's and for page-locked memory.
"""

import argparse
import subprocess
import sys

import torch
from torch import nn

import vdnn.torch


class UNet(nn.Module):
    def __init__(self, channels=16, depth=4, classes=2):
        super().__init__()

        def stage(inputs, outputs):
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
                nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            )  # fmt: skip

        widths = [channels << level for level in range(depth)]
        self.encoder = nn.ModuleList(stage(i, o) for i, o in zip([3, *widths], widths))
        self.bottom = stage(widths[-1], 2 * widths[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in reversed(widths))
        self.decoder = nn.ModuleList(stage(2 * width, width) for width in reversed(widths))
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        skipped = []
        for stage in self.encoder:
            x = stage(x)
            skipped.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, stage in zip(self.up, self.decoder):
            x = stage(torch.cat([skipped.pop(), up(x)], 1))
        return self.head(x)


def train(steps):
    """Prints all losses, and the peak from the second step on, since vdnn.torch learns during the first step."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    network = UNet().to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    images = torch.randn(4, 3, 128, 128, device=device)
    classes = torch.randint(2, (4, 128, 128), device=device)
    for step in range(steps):
        if step == 1:
            vdnn.torch.reset_peak_memory()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), classes)
        loss.backward()
        optimizer.step()
        print(f"step {step}  loss {loss.item().hex()}")
    print(f"peak {vdnn.torch.peak_memory()} bytes")


def run_both(arguments):
    results = {}
    for way in ("alone", "offload"):
        command = [sys.executable, __file__, "--run", way, "--budget", arguments.budget, "--steps", str(arguments.steps)]
        done = subprocess.run([*command, "--tier", arguments.tier], stdout=subprocess.PIPE, text=True, check=True)
        lines = done.stdout.splitlines()
        losses = [line for line in lines if line.startswith("step ")]
        peak = next(int(line.split()[1]) for line in lines if line.startswith("peak "))
        results[way] = losses, peak
        print(f"{way}:\n{done.stdout}")
    budget = vdnn.torch.parse_size(arguments.budget, "--budget")
    (alone, peak_alone), (offload, peak_offload) = results["alone"], results["offload"]
    print(f"losses {'are equal to the bit' if alone == offload else 'DIFFER'}")
    print(f"budget {budget} bytes: PyTorch alone takes {peak_alone}, with vdnn.torch {peak_offload}")
    if alone != offload or not peak_offload <= budget < peak_alone:
        sys.exit("the example failed: expected equal losses, and a peak that exceeds the budget only for PyTorch alone")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", default="64MiB")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--tier", default="auto")
    parser.add_argument("--run", choices=("alone", "offload"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is None:
        run_both(arguments)
        return
    vdnn.torch.measure_memory()
    if arguments.run == "offload":
        vdnn.torch.enable(budget=arguments.budget, tier=arguments.tier, min_size="64KiB")
    train(arguments.steps)
    if arguments.run == "offload":
        vdnn.torch.report()


if __name__ == "__main__":
    main()
