"""One training step of resnet20, computed again with PyTorch on the CPU.

  resnet20_check.py DIRECTORY

DIRECTORY holds the files of tests/reference/resnet20_dump.cpp. From the checkpoint before the step, the script computes
the forward pass in training mode, the loss, the gradient of every parameter, the update, the running statistics, and the
loss of inference after the step. PyTorch computes in double precision and vdnn in single precision, so each tensor may
differ by rounding only. The script prints the largest difference, relative to the largest element of the tensor. It must
not exceed BOUND, which allows for sums over up to 4 x 16 x 16 = 1024 places, with errors of 2^-24 each, through twenty
layers and back.

The batch is small on purpose. If a ReLU's input is within rounding of zero, one side passes the gradient and the other
does not, though neither is wrong. With a million activations that happens in every run, even between two precisions of
PyTorch, and changes gradients by a percent.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from resnet20 import read, resnet20

BOUND = 1e-4
LEARNING_RATE = 0.1
WEIGHT_DECAY = 5e-4


def read_in_double(path):
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in read(path).items()}


class Comparison:
    def __init__(self):
        self.worst = {}

    def add(self, kind, name, ours, theirs):
        if ours.shape != theirs.shape:
            sys.exit(f"{name}: {tuple(ours.shape)} here, {tuple(theirs.shape)} with PyTorch")
        scale = max(theirs.abs().max().item(), 1e-6)
        difference = ((ours - theirs).abs().max() / scale).item()
        if not difference <= self.worst.get(kind, (-1.0, ""))[0]:
            self.worst[kind] = (difference, name)

    def finish(self):
        bad = False
        for kind, (difference, name) in self.worst.items():
            print(f"{kind}: largest relative difference {difference:.2e} ({name})")
            bad = bad or not difference <= BOUND
        return 1 if bad else 0


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    directory = Path(sys.argv[1])
    torch.set_num_threads(1)
    before, after, step = (read_in_double(directory / f"{name}.safetensors") for name in ("before", "after", "step"))
    trained = [name[: -len(".gradient")] for name in step if name.endswith(".gradient")]
    p = {name: tensor.clone() for name, tensor in before.items() if not name.endswith(".momentum")}
    for name in trained:
        p[name].requires_grad_(True)
    targets = step["targets"].long()
    comparison = Comparison()

    logits = resnet20(p, step["images"], training=True)
    loss = F.cross_entropy(logits, targets)
    loss.backward()
    comparison.add("logits", "fc.y", step["logits"], logits.detach())
    comparison.add("loss", "loss", step["loss"], loss.detach())
    with torch.no_grad():
        for name in trained:
            comparison.add("gradients", name, step[name + ".gradient"], p[name].grad)
            momentum = p[name].grad + WEIGHT_DECAY * p[name]
            comparison.add("momentum", name, after[name + ".momentum"], momentum)
            p[name] -= LEARNING_RATE * momentum
        for name, tensor in p.items():
            kind = "parameters after the step" if name in trained else "running statistics"
            comparison.add(kind, name, after[name], tensor)
        inference = F.cross_entropy(resnet20(p, step["images"], training=False), targets)
    comparison.add("loss of inference", "loss", step["inference_loss"], inference)
    print(f"{len(trained)} trained parameters, {len(p) - len(trained)} running statistics")
    return comparison.finish()


if __name__ == "__main__":
    sys.exit(main())
