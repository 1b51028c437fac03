"""Trains a network on the CPU and on the fake GPU, in many orders, and reports whether both have the same bits.

One process loads PyTorch, and its children train: one on the CPU, and one per seed on the fake GPU, where the seed determines
the order of streams. The fake's judge writes each finding to a file at once, in case the child crashes.
Prints one line of JSON per seed: {"seed", "status" of the child, names of "different" tensors, "decisions" and "overlaps" by device (null
or absent if the child did not finish), "findings"}. The decisions are figures of the stash, or of hooks.py.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import traceback

import fake_gpu

EXPECTED = "expected.pt"
# The stash's statistics that follow from its decisions.
DECISIONS = ("shared", "left", "refused", "fetched_ahead", "fetched_late", "out_bytes", "in_bytes", "page_locks", "plans")


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network")
    parser.add_argument("folder", type=pathlib.Path, help="for the files of this run only")
    parser.add_argument("--stand-in", action="append", required=True, help="library; repeat in the order of loading")
    parser.add_argument("--operators", required=True, help="library of fake_gpu.build_operators()")
    parser.add_argument("--python-path", action="append", default=[], help="folder with vdnn or networks")
    parser.add_argument("--pool", nargs="?", const="512MiB", metavar="BUDGET", help="PyTorch's memory comes from vdnn's pools")
    parser.add_argument("--offload", choices=("none", "hooks", "python", "native"), default="none",
                        help="with hooks.py or a tier of vdnn.torch")
    parser.add_argument("--enable", action="store_true",
                        help="calls enable() once, without a budget or sizes, instead of offload() for each forward pass")
    parser.add_argument("--mistake", help="of hooks.MISTAKES")
    parser.add_argument("--budget", default="0", help="of vdnn.torch; 0: all eligible tensors leave")
    parser.add_argument("--min-size", type=int, default=1, help="of vdnn.torch; smaller tensors stay")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--copies", type=int, default=1, help="of the network's batch, which together are one batch")
    parser.add_argument("--streams", type=int, default=0,
                        help="networks that train in turns, each on its own stream; 0: one on the default stream")
    parser.add_argument("--gpus", type=int, default=1, help="the streams alternate between these GPUs")
    parser.add_argument("--seeds", type=int, default=1)
    return parser.parse_args()


class Reused(contextlib.AbstractContextManager):
    """Returns a function that makes a new context for each step."""

    def __init__(self, make):
        self.make = make

    def __enter__(self):
        self.entered = self.make()
        return self.entered.__enter__()

    def __exit__(self, *exception):
        return self.entered.__exit__(*exception)


def offloading(chosen, network):
    if chosen.offload == "none" or chosen.enable:
        return contextlib.nullcontext()
    if chosen.offload == "hooks":
        import hooks

        return hooks.Offloading(network, chosen.mistake)
    import vdnn.torch

    return Reused(lambda: vdnn.torch.offload(budget=chosen.budget, tier=chosen.offload, min_size=chosen.min_size))


class Training:
    """Trains one network. All work is on `stream`, if given, and its GPU."""

    def __init__(self, chosen, seed, device, stream, offloading_of):
        import networks
        import torch

        self.on_stream = lambda: torch.cuda.stream(stream)
        with self.on_stream():
            self.network, *batches = networks.make(chosen.network, seed)
            inputs, targets = (torch.cat([batch] * chosen.copies) for batch in batches)
            # Moves the network to the GPU of the stream.
            self.network.to(device)
            self.inputs, self.targets = inputs.to(device), targets.to(device)
            self.saved_tensors = offloading_of(self.network)
            self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.05, momentum=0.9)
        self.losses = []

    def step(self):
        import torch

        with self.on_stream():
            self.optimizer.zero_grad()
            with self.saved_tensors:
                loss = torch.nn.functional.cross_entropy(self.network(self.inputs), self.targets)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.detach())

    def results(self):
        """Losses, weights, buffers and gradients, by name."""
        with self.on_stream():
            losses = {f"loss {step}": loss for step, loss in enumerate(self.losses)}
            gradients = {f"gradient of {name}": parameter.grad for name, parameter in self.network.named_parameters()}
            return {name: tensor.cpu() for name, tensor in (losses | self.network.state_dict() | gradients).items()}


def train(chosen, device, streams, offloading_of=lambda network: contextlib.nullcontext()):
    trainings = [Training(chosen, seed, device, stream, offloading_of) for seed, stream in enumerate(streams)]
    for _ in range(chosen.steps):
        for training in trainings:
            training.step()
    return {f"{number}: {name}": tensor for number, training in enumerate(trainings)
            for name, tensor in training.results().items()}


def bits_of(tensor):
    """torch.equal() would ignore the sign of zero."""
    return tensor.dtype, tensor.shape, tensor.numpy().tobytes()


def train_on_cpu(chosen):
    import torch

    torch.save(train(chosen, "cpu", [None] * max(1, chosen.streams)), chosen.folder / EXPECTED)


def decisions(chosen):
    if chosen.offload == "hooks":
        import hooks

        return hooks.figures
    if chosen.offload not in ("python", "native"):
        return {}
    import vdnn.torch

    devices = vdnn.torch.report(quiet=True).devices
    return {device: {name: figures[name] for name in DECISIONS} for device, figures in devices.items()}


def overlaps(chosen):
    """The statistics of report(), by device."""
    if chosen.offload not in ("python", "native"):
        return {}
    import vdnn.torch
    from vdnn.torch._report import overlap_of

    report = vdnn.torch.report(quiet=True)
    return {device: overlap_of(figures) for device, figures in report.devices.items()}


def train_on_fake_gpu(chosen, seed):
    import torch

    if chosen.pool:
        import vdnn.torch

        vdnn.torch.use_pool(chosen.pool)
    fake_gpu.compute(chosen.operators)
    if chosen.enable:
        import vdnn.torch

        vdnn.torch.enable(tier=chosen.offload)
    streams = [torch.cuda.Stream(number % chosen.gpus) for number in range(chosen.streams)] or [None]
    found = train(chosen, "cuda", streams, lambda network: offloading(chosen, network))
    for device in range(chosen.gpus):
        torch.cuda.synchronize(device)
    expected = torch.load(chosen.folder / EXPECTED)
    different = [name for name in expected if bits_of(expected[name]) != bits_of(found[name])]
    (chosen.folder / f"{seed}.result").write_text(json.dumps({"different": different, "decisions": decisions(chosen),
                                                         "overlaps": overlaps(chosen)}))


def in_child(work, *arguments):
    """Returns the exit status. The child ends without destructors, since PyTorch's threads may still be running."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            work(*arguments)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wrong_lines(report):
    return [line for line in report.read_text().splitlines() if line.startswith(("finding ", "misuse "))]


def judge(chosen, seed):
    report = chosen.folder / f"{seed}.report"
    os.environ["VDNN_STAND_IN_SEED"] = str(seed)
    os.environ["VDNN_STAND_IN_REPORT"] = str(report)
    status = in_child(train_on_fake_gpu, chosen, seed)
    result = chosen.folder / f"{seed}.result"
    return {
        "seed": seed,
        "status": status,
        **(json.loads(result.read_text()) if result.is_file() else {"different": None, "decisions": None}),
        "findings": wrong_lines(report) if report.is_file() else [],
    }


def main():
    chosen = options()
    sys.path[1:1] = chosen.python_path
    os.environ["VDNN_STAND_IN_GPUS"] = str(chosen.gpus)
    fake_gpu.load(chosen.stand_in)
    import torch  # noqa: F401: children inherit it

    if in_child(train_on_cpu, chosen) != 0:
        sys.exit("the network cannot be trained on the CPU")
    for seed in range(chosen.seeds):
        print(json.dumps(judge(chosen, seed)))


if __name__ == "__main__":
    main()
