"""Networks of the zoo (src/network/zoo/) in PyTorch: the same layers, no dropout, random weights."""

import torch
from torch import nn


def conv_relu(inputs, filters, kernel, stride=1, padding=0):
    return nn.Sequential(nn.Conv2d(inputs, filters, kernel, stride, padding), nn.ReLU(inplace=True))


class Vgg(nn.Sequential):
    """`groups` of (filters, convolutions), each followed by pooling that halves the image; `hidden`: outputs of hidden layers."""

    def __init__(self, sample, groups, hidden, classes):
        channels, side = sample[0], sample[1]
        layers = []
        for filters, convolutions in groups:
            for _ in range(convolutions):
                layers.append(conv_relu(channels, filters, 3, padding=1))
                channels = filters
            layers.append(nn.MaxPool2d(2))
            side //= 2
        layers.append(nn.Flatten())
        inputs = channels * side * side
        for outputs in hidden:
            layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
            inputs = outputs
        super().__init__(*layers, nn.Linear(inputs, classes))


def vgg16():
    return Vgg((3, 224, 224), ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), (4096, 4096), 1000)


def fashion_vgg():
    return Vgg((1, 28, 28), ((32, 2), (64, 2), (128, 2)), (256,), 10)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        def convolution(channels, filters, kernel, step):
            return [nn.Conv2d(channels, filters, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(filters)]
        self.residual = nn.Sequential(*convolution(inputs, width, 1, 1), nn.ReLU(inplace=True),
                                      *convolution(width, width, 3, stride), nn.ReLU(inplace=True),
                                      *convolution(width, 4 * width, 1, 1))
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(inputs, 4 * width, 1, stride))

    def forward(self, x):
        return torch.relu_(self.residual(x) + self.shortcut(x))


class Resnet50(nn.Sequential):
    def __init__(self):
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                  nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for block in range(blocks):
                layers.append(Bottleneck(channels, width, 2 if block == 0 and width > 64 else 1))
                channels = 4 * width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Inception(nn.Module):
    def __init__(self, inputs, direct, reduce_3x3, filters_3x3, reduce_5x5, filters_5x5, projection):
        super().__init__()
        self.branches = nn.ModuleList([
            nn.Conv2d(inputs, direct, 1),
            nn.Sequential(conv_relu(inputs, reduce_3x3, 1), nn.Conv2d(reduce_3x3, filters_3x3, 3, padding=1)),
            nn.Sequential(conv_relu(inputs, reduce_5x5, 1), nn.Conv2d(reduce_5x5, filters_5x5, 5, padding=2)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(inputs, projection, 1))])

    def forward(self, x):
        return torch.relu_(torch.cat([branch(x) for branch in self.branches], 1))


class Googlenet(nn.Sequential):
    def __init__(self):
        def halve():
            return nn.MaxPool2d(3, 2, 1)
        super().__init__(
            conv_relu(3, 64, 7, 2, 3), halve(), conv_relu(64, 64, 1), conv_relu(64, 192, 3, padding=1), halve(),
            Inception(192, 64, 96, 128, 16, 32, 32), Inception(256, 128, 128, 192, 32, 96, 64), halve(),
            Inception(480, 192, 96, 208, 16, 48, 64), Inception(512, 160, 112, 224, 24, 64, 64),
            Inception(512, 128, 128, 256, 24, 64, 64), Inception(512, 112, 144, 288, 32, 64, 64),
            Inception(528, 256, 160, 320, 32, 128, 128), halve(),
            Inception(832, 256, 160, 320, 32, 128, 128), Inception(832, 384, 192, 384, 48, 128, 128),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))


class TwoConvolutions(nn.Sequential):
    def __init__(self, inputs, filters, stride):
        layers = []
        for channels, step in ((inputs, stride), (filters, 1)):
            layers += [nn.Conv3d(channels, filters, 3, step, 1), nn.InstanceNorm3d(filters, affine=True),
                       nn.LeakyReLU(0.01, inplace=True)]
        super().__init__(*layers)


class Unet(nn.Module):
    """A network in three spatial dimensions."""

    FILTERS = (16, 32, 64)

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(TwoConvolutions(inputs, filters, 1 if inputs == 1 else 2)
                                  for inputs, filters in zip((1, *self.FILTERS), self.FILTERS))
        pairs = list(zip(self.FILTERS, self.FILTERS[1:]))[::-1]
        self.upsample = nn.ModuleList(nn.ConvTranspose3d(wide, narrow, 2, 2) for narrow, wide in pairs)
        self.up = nn.ModuleList(TwoConvolutions(2 * narrow, narrow, 1) for narrow, _ in pairs)
        self.logits = nn.Conv3d(self.FILTERS[0], 2, 1)

    def forward(self, x):
        levels = []
        for level in self.down:
            x = level(x)
            levels.append(x)
        for skipped, upsample, up in zip(levels[-2::-1], self.upsample, self.up):
            x = up(torch.cat([upsample(x), skipped], 1))
        return self.logits(x)


class DiceCrossEntropy(nn.Module):
    def forward(self, logits, target):
        probability = torch.softmax(logits, 1)
        chosen = nn.functional.one_hot(target, logits.shape[1]).movedim(-1, 1).to(probability.dtype)
        space = tuple(range(2, logits.dim()))
        both = (probability * chosen).sum(space)
        dice = (2 * both + 1e-5) / (probability.sum(space) + chosen.sum(space) + 1e-5)
        return nn.functional.cross_entropy(logits, target) + 1 - dice.mean()


# Name: the network, the modules that checkpointing recomputes, a sample's input, classes, a target's shape, the loss.
NETWORKS = {
    "vgg16": (vgg16, nn.Sequential, (3, 224, 224), 1000, (), nn.CrossEntropyLoss),
    "fashion-vgg": (fashion_vgg, nn.Sequential, (1, 28, 28), 10, (), nn.CrossEntropyLoss),
    "resnet50": (Resnet50, Bottleneck, (3, 224, 224), 1000, (), nn.CrossEntropyLoss),
    "googlenet": (Googlenet, Inception, (3, 224, 224), 1000, (), nn.CrossEntropyLoss),
    "unet": (Unet, TwoConvolutions, (1, 64, 64, 64), 2, (64, 64, 64), DiceCrossEntropy),
}
