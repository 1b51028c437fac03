"""No registered buffer and no frozen parameter is moved, however small `min_size` is. Operations update buffers without
counting a version, so a copy would race with them. A network moves as many bytes as its twin, which saves the same tensors
without buffers. Bits are those of PyTorch alone."""

import contextlib
import copy
import gc
import unittest

import networks
import torch
from own_hooks import OwnHooks
from torch import nn
from torch.nn import functional

TIERS = ("python", "native")
CHANNELS = 64
STEPS = 4


class Statistics(nn.Module):
    """Batch normalisation whose running statistics are views of one buffer; without statistics if not `tracked`."""

    def __init__(self, tracked):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(CHANNELS))
        self.register_buffer("statistics", torch.stack([torch.zeros(CHANNELS), torch.ones(CHANNELS)]) if tracked else None)

    def forward(self, x):
        mean, variance = (None, None) if self.statistics is None else self.statistics.unbind()
        return functional.batch_norm(x, mean, variance, self.weight, None, True, 0.1)


class Uncalled(nn.Module):
    """Reads the buffers of a module that it never calls."""

    def __init__(self, tracked):
        super().__init__()
        self.norm = nn.BatchNorm2d(CHANNELS, track_running_stats=tracked)

    def forward(self, x):
        norm = self.norm
        return functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, 0.1)


# Functions by name that make a module with buffers, or its twin.
NORMS = {
    "batch normalisation": lambda tracked: nn.BatchNorm2d(CHANNELS, track_running_stats=tracked),
    "views of a buffer": Statistics,
    "a module that is not called": Uncalled,
    "TorchScript": lambda tracked: torch.jit.script(nn.Sequential(nn.BatchNorm2d(CHANNELS, track_running_stats=tracked))),
}


def network_of(norm):
    return nn.Sequential(nn.Conv2d(3, CHANNELS, 3, 1, 1), norm, nn.ReLU(), nn.Conv2d(CHANNELS, CHANNELS, 3, 1, 1), nn.Hardswish())


def assigned(network):
    network.load_state_dict({name: tensor.clone() for name, tensor in network.state_dict().items()}, assign=True)
    return network


def registered_anew(network):
    for module in list(network.modules()):
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, buffer.clone())
    return network


# Changes of the network before each step.
CHANGES = {
    "nothing": lambda network: network,
    "load_state_dict(assign=True)": assigned,
    "assignment": registered_anew,
    "another type and back": lambda network: network.double().float(),
    "deepcopy": copy.deepcopy,
}


class CallWithState:
    """Calls networks as functions of a state kept in this object."""

    def __call__(self, network, inputs):
        self.buffers = {name: tensor.clone() for name, tensor in network.named_buffers()}
        return torch.func.functional_call(network, {**dict(network.named_parameters()), **self.buffers}, (inputs,))


def train(network, change, serving, call=lambda network, inputs: network(inputs)):
    """Returns the state after each step."""
    inputs, found = torch.randn(4, 3, 16, 16), []
    for _ in range(STEPS):
        network = change(network)
        network.zero_grad()
        with serving():
            loss = call(network, inputs).square().mean()
        loss.backward()
        found.append(networks.state_of(network))
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
    return found


class Buffers(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def check(self, tier, make, make_twin, **how):
        """Compares make() with and without hooks, and the bytes that leave with those of its twin."""
        results, out_bytes = [], []
        for make_network in (make, make_twin):
            moves = OwnHooks(tier=tier, budget=0, min_size=1)
            for serving in (contextlib.nullcontext, moves.serving):
                torch.manual_seed(0)
                results.append(train(make_network(), serving=serving, **how))
            gc.collect()
            self.assertEqual(moves.figure("live_handles"), 0)
            out_bytes.append(moves.figure("out_bytes"))
        self.assertEqual(results[1], results[0])
        self.assertEqual(out_bytes[0], out_bytes[1])
        self.assertGreater(out_bytes[0], 0)

    def test_whatever_becomes_of_them(self):
        for norm, make_norm in NORMS.items():
            for name, change in CHANGES.items():
                for tier in TIERS:
                    with self.subTest(norm=norm, change=name, tier=tier):
                        make, make_twin = (lambda tracked=tracked: network_of(make_norm(tracked)) for tracked in (True, False))
                        self.check(tier, make, make_twin, change=change)

    def test_functional_call(self):
        norm = NORMS["batch normalisation"]
        for tier in TIERS:
            with self.subTest(tier):
                self.check(
                    tier, lambda: network_of(norm(True)), lambda: network_of(norm(False)), change=CHANGES["nothing"],
                    call=CallWithState())  # fmt: skip

    def test_frozen_parameters(self):
        def frozen():
            network = network_of(nn.Identity())
            network[3].weight.requires_grad_(False)
            return network

        for tier in TIERS:
            with self.subTest(tier):
                self.check(tier, frozen, lambda: network_of(nn.Identity()), change=CHANGES["nothing"])

    def test_what_has_no_history_leaves_once_nobody_holds_it(self):
        """A dropout mask leaves once the operation has returned; a program's tensor leaves once the program drops it."""
        x = torch.randn(1024, requires_grad=True)
        for tier in TIERS:
            with self.subTest(tier):
                moves = OwnHooks(tier=tier, budget=0, min_size=1)
                with moves.serving():
                    factor = torch.full((1024,), 2.0)
                    y = x * factor
                    for _ in range(8):
                        y = y + 1  # saves nothing
                        y = y.sin()
                    before = moves.figure("out_bytes")
                    del factor
                    for _ in range(4):
                        y = y.sin()
                    loss = (y * 1).sum()
                self.assertEqual(moves.figure("out_bytes") - before, 5 * x.nbytes)
                (gradient,) = torch.autograd.grad(loss, x)
                self.assertEqual(gradient.numpy().tobytes(), self.gradient_without_hooks(x))

    @staticmethod
    def gradient_without_hooks(x):
        y = x * torch.full((1024,), 2.0)
        for _ in range(8):
            y = (y + 1).sin()
        for _ in range(4):
            y = y.sin()
        return torch.autograd.grad(y.sum(), x)[0].numpy().tobytes()


if __name__ == "__main__":
    unittest.main()
