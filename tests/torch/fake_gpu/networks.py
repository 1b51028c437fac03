"""Networks that are trained on the fake GPU: ResNet-18 and U-Nets of two and three dimensions, small."""

import torch
from torch import nn


class Block(nn.Module):
    """ResNet's basic block, with ReLU in place."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(True)
        )
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels))
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )
        self.relu = nn.ReLU(True)

    def forward(self, x):
        y = self.second(self.first(x))
        y += self.shortcut(x)
        return self.relu(y)


def resnet18(classes):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    channels_in = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(channels_in, channels, stride), Block(channels, channels, 1)]
        channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class UNet(nn.Module):
    def __init__(self, dimensions, channels, depth, classes):
        super().__init__()
        self.conv, self.norm, up = {
            2: (nn.Conv2d, nn.BatchNorm2d, nn.ConvTranspose2d),
            3: (nn.Conv3d, nn.BatchNorm3d, nn.ConvTranspose3d),
        }[dimensions]
        self.pool = {2: nn.MaxPool2d, 3: nn.MaxPool3d}[dimensions](2)
        widths = [channels << level for level in range(depth + 1)]
        self.down = nn.ModuleList(self.pair(a, b) for a, b in zip([3, *widths], widths))
        self.up = nn.ModuleList(up(2 * width, width, 2, 2) for width in reversed(widths[:-1]))
        self.join = nn.ModuleList(self.pair(2 * width, width) for width in reversed(widths[:-1]))
        self.head = self.conv(channels, classes, 1)

    def pair(self, channels_in, channels):
        layers = []
        for width in (channels_in, channels):
            layers += [self.conv(width, channels, 3, padding=1), self.norm(channels), nn.ReLU(True)]
        return nn.Sequential(*layers)

    def forward(self, x):
        skipped = []
        for pair in self.down[:-1]:
            x = pair(x)
            skipped.append(x)
            x = self.pool(x)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([skipped.pop(), up(x)], 1))
        return self.head(x)


def make(name):
    """A network, a batch and its classes, the same in every process."""
    torch.manual_seed(0)
    if name == "resnet18":
        return resnet18(10), torch.randn(4, 3, 64, 64), torch.randint(10, (4,))
    if name == "unet":
        return UNet(2, 8, 3, 2), torch.randn(2, 3, 48, 48), torch.randint(2, (2, 48, 48))
    if name == "unet3d":
        return UNet(3, 8, 2, 2), torch.randn(1, 3, 16, 16, 16), torch.randint(2, (1, 16, 16, 16))
    raise ValueError(f"no network {name}")
