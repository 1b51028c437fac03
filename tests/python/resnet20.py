"""The zoo's resnet20 in PyTorch, with a checkpoint's parameters by name, and a reader of checkpoints."""

import json
import struct

import numpy
import torch
import torch.nn.functional as F


def read(path):
    """Returns a map of names to tensors. (In another test the safetensors package reads these files.)"""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    types = {"F32": numpy.float32, "I32": numpy.int32}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            array = numpy.frombuffer(data[begin:end], types[entry["dtype"]])
            tensors[name] = torch.from_numpy(array.reshape(entry["shape"]).copy())
    return tensors


def channels_first(tensor):
    return tensor.permute(0, 3, 1, 2).contiguous() if tensor.dim() == 4 else tensor


def convolution_norm(x, p, name, stride, training):
    filters = channels_first(p[name + ".filter"])
    x = F.conv2d(x, filters, stride=stride, padding=filters.shape[2] // 2)
    norm = name + "_bn"
    return F.batch_norm(
        x,
        p[norm + ".running_mean"],
        p[norm + ".running_variance"],
        p[norm + ".scale"],
        p[norm + ".shift"],
        training=training,
        momentum=0.1,
        eps=1e-5,
    )


def resnet20(p, images, training):
    x = F.relu(convolution_norm(channels_first(images), p, "conv1", 1, training))
    for group in (1, 2, 3):
        for block in (1, 2, 3):
            name = f"block{group}_{block}"
            stride = 2 if group > 1 and block == 1 else 1
            y = F.relu(convolution_norm(x, p, name + "_conv1", stride, training))
            y = convolution_norm(y, p, name + "_conv2", 1, training)
            if name + "_shortcut.filter" in p:
                x = convolution_norm(x, p, name + "_shortcut", stride, training)
            x = F.relu(x + y)
    x = F.avg_pool2d(x, x.shape[2:]).flatten(1)
    weights = p["fc.filter"].reshape(p["fc.filter"].shape[0], -1)
    return F.linear(x, weights, p["fc.bias"])
