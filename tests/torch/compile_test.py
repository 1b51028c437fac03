"""torch.compile, compiled autograd and RPC autograd: gradients as without vdnn.torch, or an error with the remedy."""

import contextlib
import os
import shutil
import unittest

import torch
import torch.distributed
import torch.multiprocessing
from ports import free_port
from torch import nn

import vdnn.torch

TIERS = ("python", "native")
STEPS = 4


def offload(tier):
    return vdnn.torch.offload(budget=0, min_size="4KiB", tier=tier)


def figure(tier, name):
    with offload(tier):
        return sum(figures[name] for figures in vdnn.torch.report(quiet=True).devices.values())


def network():
    def block():
        return nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1), nn.Tanh())

    torch.manual_seed(0)
    return nn.Sequential(*(block() for _ in range(4))), torch.randn(2, 8, 32, 32)


def compile_blocks(model, backend):
    for block in model:
        block.compile(backend=backend)
    return model


def compile_whole(model, backend):
    return torch.compile(model, backend=backend)


def train(compiled, backend, around_forward):
    """The gradients of each step, and the number of graph breaks."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model, inputs = network()
    forward = compiled(model, backend)
    gradients = []
    for _ in range(STEPS):
        model.zero_grad()
        with around_forward():
            loss = forward(inputs).square().sum()
        loss.backward()
        gradients.append([parameter.grad.numpy().tobytes() for parameter in model.parameters()])
    return gradients, sum(torch._dynamo.utils.counters["graph_break"].values())


class Compile(unittest.TestCase):
    def check(self, compiled, backend):
        expected, breaks = train(compiled, backend, contextlib.nullcontext)
        self.assertEqual(breaks, 0)
        for tier in TIERS:
            with self.subTest(compiled=compiled.__name__, backend=backend, tier=tier):
                back = figure(tier, "in_bytes")
                self.assertEqual(train(compiled, backend, lambda tier=tier: offload(tier)), (expected, 0))
                self.assertGreater(figure(tier, "in_bytes"), back)

    def test_blocks(self):
        self.check(compile_blocks, "aot_eager")

    def test_whole_model(self):
        self.check(compile_whole, "aot_eager")

    @unittest.skipUnless(shutil.which("g++"), "Inductor needs a C++ compiler")
    def test_blocks_with_inductor(self):
        self.check(compile_blocks, "inductor")


def perceptron():
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4))
    return nn.Sequential(*layers), torch.randn(64, 64)


def backward_by_compiled_autograd(around_forward):
    torch._dynamo.reset()
    model, inputs = perceptron()
    with around_forward():
        loss = model(inputs).square().sum()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        loss.backward()
    return [parameter.grad.numpy().tobytes() for parameter in model.parameters()]


class CompiledAutograd(unittest.TestCase):
    def test_python(self):
        expected = backward_by_compiled_autograd(contextlib.nullcontext)
        left = figure("python", "left")
        self.assertEqual(backward_by_compiled_autograd(lambda: offload("python")), expected)
        self.assertGreater(figure("python", "left"), left)

    def test_native(self):
        with self.assertRaisesRegex(RuntimeError, 'compiled autograd .* tier="python"'):
            backward_by_compiled_autograd(lambda: offload("native"))
        live = figure("native", "live_handles")
        self.assertEqual(live, 0)


def rpc_gradients(around_forward):
    """Four layers; the other process computes every second layer."""
    from torch.distributed import autograd, rpc

    torch.manual_seed(0)
    weights = [torch.randn(64, 64, requires_grad=True) for _ in range(4)]
    with autograd.context() as context:
        with around_forward():
            x = torch.randn(64, 64)
            for weight in weights:
                x = torch.tanh(rpc.rpc_sync("worker1", torch.matmul, args=(torch.tanh(x), weight)))
            loss = x.square().sum()
        autograd.backward(context, [loss])
        gradients = autograd.get_gradients(context)
        return [gradients[weight].numpy().tobytes() for weight in weights]


def rpc_work(rank, port, tier, answers):
    from torch.distributed import rpc

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 0:
        expected = rpc_gradients(contextlib.nullcontext)
        equal = all(rpc_gradients(lambda: offload(tier)) == expected for _ in range(STEPS))
        answers.put((equal, figure(tier, "in_bytes") > 0, figure(tier, "live_handles")))
    rpc.shutdown()


@unittest.skipUnless(torch.distributed.is_available() and torch.distributed.rpc.is_available(), "this PyTorch has no RPC")
class RpcAutograd(unittest.TestCase):
    def test_gradients(self):
        for tier in TIERS:
            with self.subTest(tier=tier):
                answers = torch.multiprocessing.get_context("spawn").SimpleQueue()
                torch.multiprocessing.spawn(rpc_work, (free_port(), tier, answers), nprocs=2)
                self.assertEqual(answers.get(), (True, True, 0))


if __name__ == "__main__":
    unittest.main()
