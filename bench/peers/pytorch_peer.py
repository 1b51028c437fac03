#!/usr/bin/env python3
"""Times steps of a network in PyTorch, as training_bench does for vdnn. Training is in fp32 (with --tf32, products may use
TF32) or in bf16 by torch.autocast, with SGD with momentum. The batch is copied from page-locked memory at each step, and the
loss is read one step late. The conditions differ in one respect: on a GPU, PyTorch uses the fastest engine that it has timed,
which may compute different bits each time. vdnn uses only engines that compute the same bits every time.

pytorch_peer.py --model resnet50 --batch 64 --mode eager [--device cuda] [--steps 20] [--tf32]
                [--precision fp32|bf16] [--threads 2] [--allocator own|expandable|libvdnn_torch.so]

Modes: eager (NCHW), channels_last, compiled (channels last, torch.compile), graph (channels last, the whole step as one
CUDA graph), checkpoint (channels last, blocks recomputed), offload (channels last, save_on_cpu(pin_memory=True)).
--allocator selects the allocator: PyTorch's own, PyTorch's own with expandable segments, or vdnn's pool from the library of
that name. With this option engines are not timed, since their choice depends on the free memory.
Prints one JSON object: seconds of a step (median), and the most memory that PyTorch reserved and allocated.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import time

import torch
from torch.utils.checkpoint import checkpoint

from pytorch_networks import NETWORKS

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import pytorch_allocator

MODES = ("eager", "channels_last", "compiled", "graph", "checkpoint", "offload")
WARM_UP_STEPS = 5
STEPS_A_ROUND = 4


def recompute(module, kind):
    """Checkpoints every module of class `kind`, which then saves only its input."""
    for child in module.children():
        if isinstance(child, kind):
            forward = child.forward
            child.forward = lambda x, forward=forward: checkpoint(forward, x, use_reentrant=False)
        else:
            recompute(child, kind)


class Training:
    def __init__(self, options):
        make, block, sample, classes, target, loss = NETWORKS[options.model]
        torch.backends.cuda.matmul.allow_tf32 = options.tf32
        torch.backends.cudnn.allow_tf32 = options.tf32
        torch.backends.cudnn.benchmark = options.allocator is None
        device = torch.device(options.device)
        layout = torch.contiguous_format
        if options.mode != "eager":
            layout = torch.channels_last_3d if len(sample) == 4 else torch.channels_last
        self.network = make().to(device, memory_format=layout)
        if options.mode == "checkpoint":
            recompute(self.network, block)
        self.forward = torch.compile(self.network) if options.mode == "compiled" else self.network
        self.offload = options.mode == "offload"
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16")
        self.loss = loss()
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=1e-4, momentum=0.9,
                                         **({"fused": True} if on_gpu else {}))
        torch.manual_seed(1)
        self.host_x = (2 * torch.rand(options.batch, *sample) - 1).to(memory_format=layout)
        self.host_target = torch.randint(2, (options.batch, *target))
        self.host_losses = [torch.zeros(()) for _ in range(2)]
        if on_gpu:
            self.host_x, self.host_target = self.host_x.pin_memory(), self.host_target.pin_memory()
            self.host_losses = [loss.pin_memory() for loss in self.host_losses]
        self.x, self.target = self.host_x.to(device), self.host_target.to(device)
        self.last_loss = torch.zeros((), device=device)
        self.read = [torch.cuda.Event() for _ in range(2)] if on_gpu else None
        self.steps = 0

    def compute(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autograd.graph.save_on_cpu(pin_memory=True) if self.offload else contextlib.nullcontext():
            with self.autocast:
                loss = self.loss(self.forward(self.x), self.target)
            loss.backward()
        self.optimizer.step()
        self.last_loss.copy_(loss.detach())

    def step(self, compute=None):
        self.x.copy_(self.host_x, non_blocking=True)
        self.target.copy_(self.host_target, non_blocking=True)
        (compute or self.compute)()
        slot = self.steps % 2
        self.host_losses[slot].copy_(self.last_loss, non_blocking=True)
        if self.read:
            self.read[slot].record()
            self.read[1 - slot].synchronize()  # the loss of the previous step
        self.steps += 1

    def captured(self):
        """The step as a graph; its first steps run on a separate stream, as capturing requires."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self.compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.compute()
        return lambda: self.step(graph.replay)


def time_steps(step, steps, synchronize):
    """Runs steps without waits in between, as in a training loop, and times rounds of them."""
    for _ in range(WARM_UP_STEPS):
        step()
    seconds = []
    for _ in range(max(steps // STEPS_A_ROUND, 1)):
        synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS_A_ROUND):
            step()
        synchronize()
        seconds.append((time.perf_counter() - begin) / STEPS_A_ROUND)
    return statistics.median(seconds)


def use_allocator(name):
    """Call it before the first allocation. Returns a function that returns the peaks of reserved and allocated memory."""
    if name in (None, "own", "expandable"):
        if name == "expandable":
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        return lambda: (torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated())
    library = pytorch_allocator.use_pool(name)

    def peaks():
        figures = pytorch_allocator.statistics_of(library).all
        return figures.reserved.peak, figures.allocated.peak
    return peaks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, choices=NETWORKS)
    parser.add_argument("--batch", required=True, type=int)
    parser.add_argument("--mode", required=True, choices=MODES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, help="threads of the CPU (default: all cores)")
    parser.add_argument("--allocator")
    options = parser.parse_args()
    on_gpu = options.device.startswith("cuda")
    if options.threads:
        torch.set_num_threads(options.threads)
    peaks = use_allocator(options.allocator) if on_gpu else lambda: (0, 0)
    training = Training(options)
    step = training.captured() if options.mode == "graph" else training.step
    seconds = time_steps(step, options.steps, torch.cuda.synchronize if on_gpu else lambda: None)
    reserved, allocated = peaks()
    print(json.dumps({"model": options.model, "batch": options.batch, "mode": options.mode,
                      "tf32": options.tf32, "precision": options.precision, "pytorch": torch.__version__, "step_seconds": seconds,
                      "reserved_bytes": reserved, "allocated_bytes": allocated}))


if __name__ == "__main__":
    main()
