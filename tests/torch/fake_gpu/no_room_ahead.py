"""The device is full when a tensor should be fetched ahead: no_room_ahead.py STAND-INS OPERATORS PATHS TIER ALLOCATOR. STAND-INS
and PATHS are lists separated by ":"; ALLOCATOR is "pool" or "own".

Prints one line of JSON: whether gradients equal those without vdnn.torch, and the number of tensors that came back late in the
previous step and in that step.
"""

import json
import os
import sys

import fake_gpu

ELEMENTS = 1 << 20  # 4 MiB per tensor
LAYERS = 8
FULL_AT = 4  # in backward, while this layer reads its saved tensors


def main():
    stand_ins, operators, paths, tier, allocator = sys.argv[1:]
    fake_gpu.load(stand_ins.split(os.pathsep))
    sys.path[1:1] = paths.split(os.pathsep)
    import torch
    import vdnn.torch

    if allocator == "pool":
        vdnn.torch.use_pool("96MiB")
    fake_gpu.compute(operators)
    if allocator == "own":
        torch.cuda.set_per_process_memory_fraction(96 / 1024)  # of the stand-in's 1 GiB

    def fill():
        taken = []
        while True:
            try:
                taken.append(torch.empty(ELEMENTS, device="cuda"))
            except torch.OutOfMemoryError:
                return taken

    class Layer(torch.autograd.Function):
        is_filled = False

        @staticmethod
        def forward(ctx, x, number):
            ctx.save_for_backward(x)
            ctx.number = number
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            taken = fill() if Layer.is_filled and ctx.number == FULL_AT else []
            (x,) = ctx.saved_tensors
            taken.clear()
            return gradient * x.cos(), None

    leaf = torch.linspace(-1, 1, ELEMENTS).to("cuda").requires_grad_()

    def gradient():
        leaf.grad = None
        x = leaf * 1
        for number in range(LAYERS):
            x = Layer.apply(x, number)
        x.backward(torch.ones_like(x))
        return leaf.grad.cpu()

    def late():
        return vdnn.torch.report(quiet=True).devices["cuda:0"]["fetched_late"]

    expected = gradient()
    late_fetches = []
    with vdnn.torch.offload(budget=0, min_size=1, tier=tier):
        equal = [torch.equal(gradient(), expected) for _ in range(3)]
        for is_filled in (False, True, False):
            before = late()
            Layer.is_filled = is_filled
            equal.append(torch.equal(gradient(), expected))
            late_fetches.append(late() - before)
    torch.cuda.synchronize()
    print(json.dumps({"equal": all(equal), "late": late_fetches}), flush=True)
    # PyTorch's threads may still be running.
    os._exit(0)


if __name__ == "__main__":
    main()
