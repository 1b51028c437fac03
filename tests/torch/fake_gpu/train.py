"""Trains a network on the CPU and on the fake GPU, and says whether weights and losses are the same to the bit.

A process of its own: what the fake's judge of order finds it writes at once, whatever becomes of the process.
"""

import argparse
import contextlib
import json
import sys

import fake_gpu


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network")
    parser.add_argument("--stand-in", action="append", required=True, help="library, in the order they are loaded")
    parser.add_argument("--operators", required=True, help="library of fake_gpu.build_operators()")
    parser.add_argument("--pool", help="libvdnn_torch.so: PyTorch's memory is of its pools")
    parser.add_argument("--offload", choices=("none", "hooks", "python", "native"), default="none",
                        help="by hooks.py, or by a tier of vdnn.torch")
    parser.add_argument("--mistake", help="of hooks.MISTAKES")
    parser.add_argument("--budget", default="0", help="of vdnn.torch; 0: all that is eligible leaves")
    parser.add_argument("--min-size", default="1", help="of vdnn.torch")
    parser.add_argument("--steps", type=int, default=2)
    return parser.parse_args()


def offloading(chosen, network):
    if chosen.offload == "none":
        return contextlib.nullcontext()
    if chosen.offload == "hooks":
        import hooks

        return hooks.Offloading(network, chosen.mistake)
    import vdnn.torch

    return Reused(lambda: vdnn.torch.offload(budget=chosen.budget, tier=chosen.offload, min_size=chosen.min_size))


class Reused(contextlib.AbstractContextManager):
    """A context that is entered anew in each step."""

    def __init__(self, make):
        self.make = make

    def __enter__(self):
        self.entered = self.make()
        return self.entered.__enter__()

    def __exit__(self, *exception):
        return self.entered.__exit__(*exception)


def train(name, device, steps, offloading_of=lambda network: contextlib.nullcontext()):
    import networks
    import torch

    network, images, classes = networks.make(name)
    network.to(device)
    images, classes = images.to(device), classes.to(device)
    saved_tensors = offloading_of(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        with saved_tensors:
            loss = torch.nn.functional.cross_entropy(network(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [tensor.cpu() for tensor in [*losses, *network.state_dict().values()]]


def main():
    sys.path[1:1] = [str(fake_gpu.ROOT / "tests" / "torch"), str(fake_gpu.ROOT / "python")]
    chosen = options()
    fake_gpu.load(chosen.stand_in)
    import torch

    if chosen.pool:
        sys.path.insert(0, str(fake_gpu.ROOT / "examples"))
        import pytorch_allocator

        pytorch_allocator.use_pool(chosen.pool)
    fake_gpu.compute(chosen.operators)
    expected = train(chosen.network, "cpu", chosen.steps)
    found = train(chosen.network, "cuda", chosen.steps, lambda network: offloading(chosen, network))
    torch.cuda.synchronize()
    different = sum(not torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    print(json.dumps({"tensors": len(expected), "different": different, "losses": [x.item() for x in found[: chosen.steps]]}))


if __name__ == "__main__":
    main()
