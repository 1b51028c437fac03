"""Trains a network on the CPU and on the fake GPU, in many orders, and says whether both have the same bits.

One process loads PyTorch, and children of it train: one on the CPU, and one on the fake GPU for each seed, from which the order
of its streams follows. What the fake's judge of order finds in a child is in a file at once, whatever becomes of the child.
For each seed one line of JSON: {"seed", "status" of the child, "different" tensors (null where it did not come to its end),
"findings"}.
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


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network")
    parser.add_argument("folder", type=pathlib.Path, help="for files, of this run alone")
    parser.add_argument("--stand-in", action="append", required=True, help="library, in the order they are loaded")
    parser.add_argument("--operators", required=True, help="library of fake_gpu.build_operators()")
    parser.add_argument("--python-path", action="append", default=[], help="where vdnn and networks are found")
    parser.add_argument("--pool", action="store_true", help="PyTorch's memory is of vdnn's pools")
    parser.add_argument("--offload", choices=("none", "hooks", "python", "native"), default="none",
                        help="by hooks.py, or by a tier of vdnn.torch")
    parser.add_argument("--mistake", help="of hooks.MISTAKES")
    parser.add_argument("--budget", default="0", help="of vdnn.torch; 0: all that is eligible leaves")
    parser.add_argument("--min-size", type=int, default=4096, help="of vdnn.torch; smaller tensors stay")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    return parser.parse_args()


class Reused(contextlib.AbstractContextManager):
    """A context that is made anew for each step."""

    def __init__(self, make):
        self.make = make

    def __enter__(self):
        self.entered = self.make()
        return self.entered.__enter__()

    def __exit__(self, *exception):
        return self.entered.__exit__(*exception)


def offloading(chosen, network):
    if chosen.offload == "none":
        return contextlib.nullcontext()
    if chosen.offload == "hooks":
        import hooks

        return hooks.Offloading(network, chosen.mistake)
    import vdnn.torch

    return Reused(lambda: vdnn.torch.offload(budget=chosen.budget, tier=chosen.offload, min_size=chosen.min_size))


def train(name, device, steps, offloading_of=lambda network: contextlib.nullcontext()):
    import networks
    import torch

    network, inputs, targets = networks.make(name)
    network.to(device)
    inputs, targets = inputs.to(device), targets.to(device)
    saved_tensors = offloading_of(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with saved_tensors:
            loss = torch.nn.functional.cross_entropy(network(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    gradients = [parameter.grad for parameter in network.parameters()]
    return [tensor.cpu() for tensor in [*losses, *network.state_dict().values(), *gradients]]


def train_on_cpu(chosen):
    import torch

    torch.save(train(chosen.network, "cpu", chosen.steps), chosen.folder / EXPECTED)


def train_on_fake_gpu(chosen, seed):
    import torch

    if chosen.pool:
        import vdnn.torch

        vdnn.torch.use_pool("512MiB")
    fake_gpu.compute(chosen.operators)
    found = train(chosen.network, "cuda", chosen.steps, lambda network: offloading(chosen, network))
    torch.cuda.synchronize()
    expected = torch.load(chosen.folder / EXPECTED)
    different = sum(not torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    (chosen.folder / f"{seed}.different").write_text(str(different))


def in_child(work, *arguments):
    """The exit status. The child ends without destructors: PyTorch's threads may be in the middle of something."""
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
    different = chosen.folder / f"{seed}.different"
    return {
        "seed": seed,
        "status": status,
        "different": int(different.read_text()) if different.is_file() else None,
        "findings": wrong_lines(report) if report.is_file() else [],
    }


def main():
    chosen = options()
    sys.path[1:1] = chosen.python_path
    fake_gpu.load(chosen.stand_in)
    import torch  # noqa: F401: children have it already

    if in_child(train_on_cpu, chosen) != 0:
        sys.exit("the network cannot be trained on the CPU")
    for seed in range(chosen.seeds):
        print(json.dumps(judge(chosen, seed)))


if __name__ == "__main__":
    main()
