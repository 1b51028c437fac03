"""If vdnn's pool refuses memory, the program gets torch.OutOfMemoryError with the pool's numbers, wherever it allocates.

Prints one line of JSON: the type and the text of each exception, the pool's bytes in use afterwards, and its peaks before and
after a restart. With the argument "late", use_pool() comes after hooks have been made; then only its exception is printed.
"""

import json
import os
import sys

import fake_gpu

GIB = 1 << 30


def caught(work):
    try:
        work()
    except BaseException as error:
        return {"type": f"{type(error).__module__}.{type(error).__name__}", "text": str(error)}
    return None


def main():
    stand_ins, paths = sys.argv[1].split(os.pathsep), sys.argv[2].split(os.pathsep)
    fake_gpu.load(stand_ins)
    sys.path[1:1] = paths
    import torch
    import vdnn.torch
    from vdnn.torch import _pool

    if sys.argv[3:] == ["late"]:
        with vdnn.torch.offload(budget="1GiB", tier="python"):
            pass
        print(json.dumps(caught(lambda: vdnn.torch.use_pool("64MiB"))))
        return

    class AsksInBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            torch.empty(GIB, dtype=torch.uint8, device="cuda")
            return gradient

    refused = {"budget of 0": caught(lambda: vdnn.torch.use_pool(0))}
    vdnn.torch.use_pool("64MiB")
    refused["used twice"] = caught(lambda: vdnn.torch.use_pool("64MiB"))
    refused["a tensor"] = caught(lambda: torch.empty(GIB, dtype=torch.uint8, device="cuda"))
    small = torch.empty(1000, dtype=torch.uint8, device="cuda", requires_grad=False)
    leaf = torch.empty(1000, device="cuda", requires_grad=True)
    refused["in backward"] = caught(lambda: AsksInBackward.apply(leaf).backward(leaf.detach()))
    refused["no such GPU"] = caught(lambda: torch.empty(1, device="cuda:7"))
    fits = torch.empty(60 << 20, dtype=torch.uint8, device="cuda")
    beyond = caught(lambda: torch.empty(60 << 20, dtype=torch.uint8, device="cuda"))
    refused["beyond the budget"] = beyond
    del small, fits
    peaks = [vdnn.torch.peak_memory()]
    vdnn.torch.reset_peak_memory()
    peaks.append(vdnn.torch.peak_memory())
    print(json.dumps({"refused": refused, "in use": _pool.memory_figures(0).current, "budget": _pool.budget_of_tensors(),
                      "peaks": peaks}), flush=True)
    # PyTorch's backward threads can abort the process if they hold an exception, even with PyTorch's own allocator.
    os._exit(0)


if __name__ == "__main__":
    main()
