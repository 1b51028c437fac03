"""Networks for the tests of vdnn.torch, each with a batch and a loss. Each call of `make(name)` makes the same network."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        identity = x if self.shortcut is None else self.shortcut(x)
        y = self.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        y += identity
        return self.relu(y)


class ResNet18(nn.Module):
    """If `checkpointed`, PyTorch recomputes the blocks, alternating between its older and its newer method."""

    def __init__(self, classes=100, checkpointed=False):
        super().__init__()
        blocks, inputs = [], 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [ResidualBlock(inputs, outputs, stride), ResidualBlock(outputs, outputs, 1)]
            inputs = outputs
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(512, classes)
        self.checkpointed = checkpointed

    def forward(self, x):
        x = self.stem(x)
        for index, block in enumerate(self.blocks):
            x = checkpoint.checkpoint(block, x, use_reentrant=index % 2 == 0) if self.checkpointed else block(x)
        x = functional.adaptive_avg_pool2d(x, 1)
        return self.classifier(torch.flatten(x, 1))


class UNet(nn.Module):
    """Has two or three dimensions. If `checkpointed`, PyTorch recomputes the encoder's stages."""

    def __init__(self, channels=16, depth=4, classes=2, dimensions=2, checkpointed=False):
        super().__init__()
        convolution = (nn.Conv2d, nn.Conv3d)[dimensions - 2]
        norm = (nn.BatchNorm2d, nn.BatchNorm3d)[dimensions - 2]
        transposed = (nn.ConvTranspose2d, nn.ConvTranspose3d)[dimensions - 2]

        def stage(inputs, outputs):
            return nn.Sequential(
                convolution(inputs, outputs, 3, 1, 1), norm(outputs), nn.ReLU(True),
                convolution(outputs, outputs, 3, 1, 1), norm(outputs), nn.ReLU(True),
            )  # fmt: skip

        widths = [channels << level for level in range(depth)]
        self.encoder = nn.ModuleList(stage(i, o) for i, o in zip([3, *widths], widths))
        self.bottom = stage(widths[-1], 2 * widths[-1])
        self.up = nn.ModuleList(transposed(2 * width, width, 2, 2) for width in reversed(widths))
        self.decoder = nn.ModuleList(stage(2 * width, width) for width in reversed(widths))
        self.head = convolution(channels, classes, 1)
        self.pool = (nn.MaxPool2d, nn.MaxPool3d)[dimensions - 2](2)
        self.checkpointed = checkpointed

    def forward(self, x):
        skipped = []
        for stage in self.encoder:
            x = checkpoint.checkpoint(stage, x, use_reentrant=False) if self.checkpointed else stage(x)
            skipped.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up, stage in zip(self.up, self.decoder):
            x = stage(torch.cat([skipped.pop(), up(x)], 1))
        return self.head(x)


class SequenceNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(32, 64, 2)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.recurrent(x)[0]).mean(0)


class TransformerNetwork(nn.Module):
    """If `checkpointed`, PyTorch recomputes the blocks, dropout included."""

    def __init__(self, blocks=1, checkpointed=False):
        super().__init__()
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True) for _ in range(blocks))
        self.head = nn.Linear(64, 10)
        self.checkpointed = checkpointed

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint.checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(x.mean(1))


class RewrittenNetwork(nn.Module):
    """Saves a tensor, changes it in place and saves it again. The first saved version is never read."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, 1, 1)
        self.second = nn.Conv2d(16, 16, 3, 1, 1)
        self.head = nn.Linear(16, 10)
        self.never_read = None

    def forward(self, x):
        x = self.first(x)
        self.never_read = x.sin()  # saves x
        if x.is_cuda:  # a racing copy out is harmless, since PyTorch refuses to read it, but the judge reports it
            torch.cuda.synchronize()
        x.mul_(0.5).add_(1)
        x = self.second(x)
        return self.head(x.tanh().mean((2, 3)))


class PlacedNetwork(nn.Module):
    """Saves a tensor in memory that the allocator does not know as a block, like memory of other libraries. The tensors that
    the first forward pass saves in it are never read, and the second pass writes the same memory."""

    OFFSET = 4096  # in a block

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.full((1,), 0.25))
        self.body = nn.Conv2d(3, 16, 3, 1, 1)
        self.head = nn.Linear(16, 10)
        self.arena = None

    def _place(self, x):
        storage = torch._C._construct_storage_from_data_pointer(self.arena.data_ptr() + self.OFFSET, x.device, x.nbytes)
        return torch.empty(0, dtype=x.dtype, device=x.device).set_(storage, 0, x.shape)

    def _embed(self, x):
        placed = self._place(x)
        placed.copy_(x)
        return self.body(placed.add_(self.bias))

    def forward(self, x):
        if self.arena is None:
            self.arena = torch.empty(self.OFFSET + x.nbytes, dtype=torch.uint8, device=x.device)
        self._embed(x)
        return self.head(self._embed(x).tanh().mean((2, 3)))


class BranchedNetwork(nn.Module):
    """On a GPU, the second branch of each pair and its backward pass run on a second stream. With `beside`, this branch
    begins before the pair's first one."""

    def __init__(self, beside=False):
        super().__init__()
        self.beside = beside
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        self.pairs = nn.ModuleList(nn.ModuleList([self._long_branch(), self._short_branch()]) for _ in range(4))
        self.head = nn.Linear(16, 10)
        self.side = None

    @staticmethod
    def _long_branch():
        return nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1), nn.Tanh(), nn.Conv2d(16, 16, 3, 1, 1), nn.Tanh(), nn.Tanh())

    @staticmethod
    def _short_branch():
        return nn.Sequential(nn.Tanh(), nn.Sigmoid())

    def _begin_on_side(self, branch, x):
        if not x.is_cuda:
            return branch(x)
        self.side = self.side or torch.cuda.Stream()
        self.side.wait_stream(torch.cuda.current_stream())
        x.record_stream(self.side)
        with torch.cuda.stream(self.side):
            return branch(x)

    def _join(self, y):
        if y.is_cuda:
            main = torch.cuda.current_stream()
            main.wait_stream(self.side)
            y.record_stream(main)
        return y

    def forward(self, x):
        x = self.stem(x)
        for first, second in self.pairs:
            begun = self._begin_on_side(second, x) if self.beside else None
            y = first(x)
            x = y + self._join(begun if self.beside else self._begin_on_side(second, x))
        return self.head(x.mean((2, 3)))


class ForkedNetwork(nn.Module):
    """One stream makes a tensor and continues with other work, while another stream saves the tensor. There is no
    record_stream(): PyTorch alone needs none, since the graph holds the tensor until its backward pass."""

    def __init__(self):
        super().__init__()
        self.stems = nn.ModuleList(nn.Conv2d(3, 16, 3, 1, 1) for _ in range(4))
        self.others = nn.ModuleList(nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.Tanh(), nn.Sigmoid()) for _ in range(4))
        self.head = nn.Linear(16, 10)
        self.side = None

    @staticmethod
    def _branch(x):
        return x.sin().exp().sin().exp().sin()

    def _beside(self, stem, other, x):
        if not x.is_cuda:
            return self._branch(stem(x)) + other(x)
        main = torch.cuda.current_stream()
        self.side = self.side or torch.cuda.Stream()
        made = stem(x)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            y = self._branch(made)
        del made
        z = other(x)
        main.wait_stream(self.side)
        y.record_stream(main)
        return y + z

    def forward(self, x):
        return self.head(sum(self._beside(*pair, x) for pair in zip(self.stems, self.others)).mean((2, 3)))


def _image_batch(*shape, classes):
    return torch.randn(*shape), torch.randint(classes, shape[:1])


def _pixel_batch(*shape):
    return torch.randn(*shape), torch.randint(2, (shape[0], *shape[2:]))


def _checkpointed_transformer():
    return TransformerNetwork(blocks=3, checkpointed=True), torch.randn(8, 32, 64), torch.randint(10, (8,))


_MAKERS = {
    "resnet18": lambda: (ResNet18(), *_image_batch(4, 3, 64, 64, classes=100)),
    "unet": lambda: (UNet(), *_pixel_batch(2, 3, 64, 64)),
    "unet3d": lambda: (UNet(8, 2, dimensions=3), *_pixel_batch(1, 3, 16, 16, 16)),
    "checkpointed": lambda: (UNet(8, 3, checkpointed=True), *_pixel_batch(2, 3, 32, 32)),
    "checkpointed_resnet18": lambda: (ResNet18(checkpointed=True), *_image_batch(2, 3, 64, 64, classes=100)),
    "checkpointed_transformer": _checkpointed_transformer,
    "rewritten": lambda: (RewrittenNetwork(), *_image_batch(4, 3, 32, 32, classes=10)),
    "branched": lambda: (BranchedNetwork(), *_image_batch(4, 3, 32, 32, classes=10)),
    "forked": lambda: (ForkedNetwork(), *_image_batch(4, 3, 32, 32, classes=10)),
    "branched_beside": lambda: (BranchedNetwork(beside=True), *_image_batch(4, 3, 32, 32, classes=10)),
    "placed": lambda: (PlacedNetwork(), *_image_batch(4, 3, 32, 32, classes=10)),
    "lstm": lambda: (SequenceNetwork(), torch.randn(20, 16, 32), torch.randint(10, (16,))),
    "transformer": lambda: (TransformerNetwork(), torch.randn(8, 32, 64), torch.randint(10, (8,))),
}
NAMES = tuple(_MAKERS)


def make(name, seed=0):
    """The network, inputs and targets; the loss is cross entropy."""
    torch.manual_seed(seed)
    return _MAKERS[name]()


def state_of(network):
    """Gradients, weights and buffers, as bytes."""
    tensors = [*network.parameters(), *network.buffers(), *(p.grad for p in network.parameters() if p.grad is not None)]
    return b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)


def train(name, around_forward, steps=4, memory_format=None, autocast=False):
    """Returns the state after each step. `around_forward()` is the context of each forward pass."""
    network, inputs, targets = make(name)
    if memory_format is not None:
        network, inputs = network.to(memory_format=memory_format), inputs.to(memory_format=memory_format)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    states = []
    for _ in range(steps):
        optimizer.zero_grad()
        with around_forward(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = functional.cross_entropy(network(inputs).float(), targets)
        loss.backward()
        states.append(state_of(network))
        optimizer.step()
    return states
