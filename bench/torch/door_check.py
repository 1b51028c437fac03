#!/usr/bin/env python3
"""Checks the promises of vdnn.torch in PyTorch on a GPU. scripts/gpu-check --stage door runs it.

    door_check.py CHECK [--network unet] [--batch N] [--tier auto|python|native] [--device cuda|cpu] [--steps 4]
                        [--min-size BYTES] [--budget BYTES]

  bits      losses, gradients, weights and buffers have the same bits in plain training, under
            torch.autograd.graph.save_on_cpu(pin_memory=True), and under vdnn.torch: once with all eligible tensors leaving,
            once within a budget. A loss may differ that also differs between two plain trainings, since some losses of PyTorch
            add with atomics
  peak      PyTorch's peak exceeds neither the budget nor the peak that the plan predicts by more than 2 %. For networks from
            tests/torch/networks.py it is not more than 2 % below the plan's peak either
  waits     no call of CUDA in a step waits on the host: a profile of three steps has no more waits than one of a single step.
            PyTorch's own check of synchronisation passes
  overlap   at least 90 % of the copies' time is hidden. Not judged if the copies to the host take longer than the forward
            pass, or the copies to the GPU longer than the rest of the step
  batch     a batch for which plain training runs out of memory trains in the same memory with vdnn.torch
  steps     checks nothing: trains within a budget, so that a test can count the calls of its steps

Networks: resnet50, vgg16, googlenet and unet as in the zoo (bench/peers/pytorch_networks.py); small-NAME from
tests/torch/networks.py. Engines are deterministic. Prints one line of JSON. If a check fails, prints one line and exits with 1.
"""

import argparse
import contextlib
import gc
import json
import os
import pathlib
import re
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / folder) for folder in ("python", "bench/peers", "tests/torch")]
# cuBLAS reproduces bits only with a fixed workspace (cuBLAS Library, "Results Reproducibility").
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402

import vdnn.torch  # noqa: E402

SMALL = "small-"
TOLERANCE = 1.02  # of peaks
# The memory in which check `batch` trains, as a fraction of plain training's peak. Plain training does not fit into it.
MEMORY_OF_PLAIN_PEAK = 0.9
HIDDEN = 0.9
WAITS = re.compile(r"cu(da)?(Stream|Device|Event|Ctx)Synchronize")
# The stash learns the first step, and provides memory for the plan in the second one.
WARM_UP_STEPS = 3
TIMED_STEPS = 10
PROFILED_STEPS = 3
COPIED_BYTES = 256 << 20


class CheckFailed(Exception):
    pass


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("--network", default="unet")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tier", default="auto")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=int, help="bytes; default: derived from the peak of plain training")
    parser.add_argument("--min-size", type=int, default=1 << 20, help="bytes; smaller tensors stay on the device")
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def make(name, batch):
    """A network, its inputs, its targets and its loss."""
    if name.startswith(SMALL):
        import networks

        network, *batches = networks.make(name.removeprefix(SMALL))
        copies = -(-batch // len(batches[0]))
        return network, *(torch.cat([samples] * copies)[:batch] for samples in batches), torch.nn.CrossEntropyLoss()
    from pytorch_networks import NETWORKS

    network, _, sample, classes, target, loss = NETWORKS[name]
    torch.manual_seed(1)
    return network(), torch.rand(batch, *sample), torch.randint(classes, (batch, *target)), loss()


class Training:
    def __init__(self, chosen, around_forward=contextlib.nullcontext):
        network, inputs, targets, self.loss = make(chosen.network, chosen.batch)
        self.network = network.to(chosen.device)
        self.inputs, self.targets = inputs.to(chosen.device), targets.to(chosen.device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=1e-2, momentum=0.9)
        self.around_forward = around_forward

    def step(self):
        self.optimizer.zero_grad()
        with self.around_forward():
            loss = self.loss(self.network(self.inputs), self.targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self, steps):
        """Losses, weights, buffers and gradients, by name."""
        losses = {f"loss {step}": self.step() for step in range(steps)}
        gradients = {f"gradient of {name}": parameter.grad for name, parameter in self.network.named_parameters()}
        return {name: tensor.cpu() for name, tensor in (losses | self.network.state_dict() | gradients).items()}


def offloading(chosen, budget):
    return lambda: vdnn.torch.offload(budget=budget, tier=chosen.tier, min_size=chosen.min_size)


def offloading_all(chosen):
    return lambda: vdnn.torch.offload(budget=0, tier=chosen.tier, min_size=min(chosen.min_size, 4096))


def save_on_cpu(chosen):
    return lambda: torch.autograd.graph.save_on_cpu(pin_memory=chosen.device != "cpu")


def peak_of(training, steps):
    """The peak of allocated bytes in the steps after the warm-up."""
    for _ in range(WARM_UP_STEPS):
        training.step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        training.step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def plain_figures(chosen):
    """The peak of a step without offloading, and the bytes in use between steps."""
    training = Training(chosen)
    peak = peak_of(training, chosen.steps)
    resident = torch.cuda.memory_allocated()
    del training
    gc.collect()
    torch.cuda.empty_cache()
    return peak, resident


def budget_of(chosen, plain_peak, resident, tenths=6):
    """--budget, or `resident` (weights, gradients, the optimizer's state) plus `tenths` tenths of the rest of the peak."""
    return chosen.budget or resident + tenths * (plain_peak - resident) // 10


def bits_of(tensor):
    return tensor.dtype, tensor.shape, tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def names_of_different(expected, found):
    """Results with different bits. torch.equal() would ignore the sign of zero."""
    return [name for name in expected if bits_of(expected[name]) != bits_of(found[name])]


def check_bits(chosen):
    expected = Training(chosen).run(chosen.steps)
    # Not all of PyTorch's losses have a deterministic implementation.
    unsteady = names_of_different(expected, Training(chosen).run(chosen.steps))
    if not all(name.startswith("loss ") for name in unsteady):
        raise CheckFailed(f"PyTorch alone is not deterministic here: {unsteady}")
    ways = {"save_on_cpu": save_on_cpu(chosen), "vdnn.torch, all leaves": offloading_all(chosen)}
    if chosen.device != "cpu":
        ways["vdnn.torch, in a budget"] = offloading(chosen, budget_of(chosen, *plain_figures(chosen)))
    different, moved = {}, {}
    for way, around_forward in ways.items():
        found = Training(chosen, around_forward).run(chosen.steps)
        different[way] = [name for name in names_of_different(expected, found) if name not in unsteady]
        if way.startswith("vdnn"):
            moved[way] = moved_bytes()[0]
    if any(different.values()):
        raise CheckFailed(f"tensors that differ from plain training, of {len(expected)}: {different}")
    if not all(moved.values()):
        raise CheckFailed(f"nothing was moved, so equal bits prove nothing: {moved}")
    return {"tensors": len(expected) - len(unsteady), "unsteady": unsteady, "ways": list(ways), "moved_bytes": moved}


def check_peak(chosen):
    plain_peak, resident = plain_figures(chosen)
    budget = budget_of(chosen, plain_peak, resident)
    peak = peak_of(Training(chosen, offloading(chosen, budget)), chosen.steps)
    planned = sum(figures["planned_peak_bytes"] for figures in vdnn.torch.report(quiet=True).devices.values())
    row = {"plain_bytes": plain_peak, "budget_bytes": budget, "planned_bytes": planned, "peak_bytes": peak}
    if peak >= plain_peak:
        raise CheckFailed(f"the peak is not below that of plain training, so the check proves nothing: {row}")
    if peak > TOLERANCE * budget:
        raise CheckFailed(f"the peak exceeds the budget by more than 2 %: {row}")
    if peak > TOLERANCE * planned:
        raise CheckFailed(f"the peak exceeds the plan's peak by more than 2 %: {row}")
    # A plan counts an upper bound of the workspaces of operations. With large workspaces the peak may be further below it.
    if chosen.network.startswith(SMALL) and TOLERANCE * peak < planned:
        raise CheckFailed(f"the peak is more than 2 % below the plan's peak: {row}")
    return row


def check_waits(chosen):
    training = Training(chosen, offloading(chosen, budget_of(chosen, *plain_figures(chosen))))
    for _ in range(WARM_UP_STEPS):
        training.step()
    torch.cuda.synchronize()
    if not moved_bytes()[0]:
        raise CheckFailed("nothing was moved, so the check proves nothing")
    torch.cuda.set_sync_debug_mode("error")
    try:
        training.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    return judge_waits(calls_of_steps(training, 1), calls_of_steps(training, PROFILED_STEPS))


def calls_of_steps(training, steps):
    """By name, how many calls the profiler counts in `steps` steps."""
    with torch.profiler.profile() as profiler:
        for _ in range(steps):
            training.step()
    return {event.key: event.count for event in profiler.key_averages()}


def judge_waits(one, several):
    """`one`, `several`: the calls of one step and of PROFILED_STEPS steps, by name."""
    if not any(name.startswith("cuda") for name in one):
        raise CheckFailed("the profiler has recorded no call of CUDA")
    # The profiler itself may wait, as often for one step as for several.
    waits = {name: (one.get(name, 0), count) for name, count in several.items() if WAITS.match(name)}
    if any(count > in_one for in_one, count in waits.values()):
        raise CheckFailed(f"the host waits within a step (calls in 1 and in {PROFILED_STEPS} steps): {waits}")
    return {"calls": sum(count for name, count in one.items() if name.startswith("cuda")), "waits": waits}


def step_seconds(training):
    for _ in range(WARM_UP_STEPS):
        training.step()
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(TIMED_STEPS):
        training.step()
    torch.cuda.synchronize()
    return (time.monotonic() - begin) / TIMED_STEPS


class ForwardTimer:
    """Measures the GPU's time for forward passes."""

    def __init__(self):
        self.intervals = []

    @contextlib.contextmanager
    def around_forward(self):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self.intervals.append((begin, end))

    def seconds(self):
        torch.cuda.synchronize()
        return statistics.median(begin.elapsed_time(end) for begin, end in self.intervals) / 1e3


def copy_seconds_per_byte():
    """Seconds per byte to the host and to the GPU, each direction alone on the link."""
    on_gpu = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    on_host = torch.empty(COPIED_BYTES, dtype=torch.uint8, pin_memory=True)
    seconds = []
    for to, source in ((on_host, on_gpu), (on_gpu, on_host)):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        rounds = []
        for _ in range(5):
            begin.record()
            to.copy_(source, non_blocking=True)
            end.record()
            end.synchronize()
            rounds.append(begin.elapsed_time(end) / 1e3)
        seconds.append(statistics.median(rounds) / COPIED_BYTES)
    return seconds


def moved_bytes():
    return [sum(figures[way] for figures in vdnn.torch.report(quiet=True).devices.values())
            for way in ("out_bytes", "in_bytes")]


def check_overlap(chosen):
    timer = ForwardTimer()
    plain = step_seconds(Training(chosen, timer.around_forward))
    forward = timer.seconds()
    budget = budget_of(chosen, *plain_figures(chosen))
    training = Training(chosen, offloading(chosen, budget))
    for _ in range(WARM_UP_STEPS):
        training.step()
    before = moved_bytes()
    training.step()
    moved = [after - earlier for after, earlier in zip(moved_bytes(), before)]
    offloaded = step_seconds(training)
    out_seconds, in_seconds = (size * seconds for size, seconds in zip(moved, copy_seconds_per_byte()))
    return judge_overlap(plain, forward, offloaded, out_seconds, in_seconds)


def judge_overlap(plain, forward, offloaded, out_seconds, in_seconds):
    """Seconds of a plain step, of its forward pass, of a step with offloading, and of its copies in each direction."""
    copying = max(out_seconds, in_seconds)  # the two directions can run at the same time
    if copying == 0:
        raise CheckFailed("nothing was moved, so there is nothing to hide")
    hidden = 1 - max(0.0, offloaded - plain) / copying
    # Tensors leave beside the forward pass and come back beside the backward pass.
    link_allows = out_seconds <= forward and in_seconds <= plain - forward
    row = {"plain_seconds": plain, "forward_seconds": forward, "seconds": offloaded, "out_seconds": out_seconds,
           "in_seconds": in_seconds, "hidden": hidden,
           "verdict": "judged" if link_allows else "not judged: copies take longer than the pass beside which they run"}
    if link_allows and hidden < HIDDEN:
        raise CheckFailed(f"only {hidden:.0%} of the copies' {1e3 * copying:.1f} ms are hidden: {row}")
    return row


def runs_out_of_memory(chosen):
    """Whether plain training runs out of memory. The exception, which keeps memory allocated, is released on return."""
    try:
        Training(chosen).run(1)
    except torch.OutOfMemoryError:
        return True
    return False


def check_batch(chosen):
    plain_peak, resident = plain_figures(chosen)
    memory = int(MEMORY_OF_PLAIN_PEAK * plain_peak)
    # The budget is smaller than the memory, since the allocator's cache fragments.
    budget = budget_of(chosen, plain_peak, resident, tenths=4)
    torch.cuda.set_per_process_memory_fraction(memory / torch.cuda.get_device_properties(0).total_memory)
    row = {"memory_bytes": memory, "plain_bytes": plain_peak, "budget_bytes": budget}
    if not runs_out_of_memory(chosen):
        raise CheckFailed(f"plain training fits, so the check proves nothing: {row}")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    training = Training(chosen, offloading(chosen, budget))
    try:
        results = training.run(chosen.steps)
    except torch.OutOfMemoryError as error:
        raise CheckFailed(f"training with offloading runs out of memory, too: {row}: {error}") from None
    return {**row, "reserved_bytes": torch.cuda.max_memory_reserved(), "last_loss": results[f"loss {chosen.steps - 1}"].item()}


def check_steps(chosen):
    training = Training(chosen, offloading(chosen, chosen.budget or 0))
    for _ in range(chosen.steps):
        training.step()
    return {"moved_bytes": moved_bytes()[0]}


CHECKS = {"bits": check_bits, "peak": check_peak, "waits": check_waits, "overlap": check_overlap, "batch": check_batch,
          "steps": check_steps}


def main():
    chosen = options()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA driver, or no GPU that PyTorch can use")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        row = CHECKS[chosen.check](chosen)
    except CheckFailed as failure:
        sys.exit(f"{chosen.check}: {failure}")
    print(json.dumps({"check": chosen.check, "network": chosen.network, "batch": chosen.batch, "tier": chosen.tier,
                      "torch": torch.__version__, **row}))


if __name__ == "__main__":
    main()
