"""Offloading in a few lines of Python, on its own stream, and typical mistakes of such lines. The mistakes test the fake GPU's judge.
"""

import collections

import torch

# What all Offloading of this process have moved, by device.
figures = collections.defaultdict(lambda: {"left": 0, "in_bytes": 0})

# Each mistake leaves out one wait or one hold.
MISTAKES = ("copy_out_does_not_wait", "source_freed_too_early", "reader_does_not_wait", "target_freed_too_early")


class Offloading(torch.autograd.graph.saved_tensors_hooks):
    """Parameters and buffers stay on the GPU: batch normalisation saves its running statistics before it updates them."""

    def __init__(self, network, mistake=None):
        self.stream = torch.cuda.Stream()
        self.mistake = mistake
        self.staying = {tensor.untyped_storage().data_ptr() for tensor in network.state_dict().values()}
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor):
        if tensor.untyped_storage().data_ptr() in self.staying:
            return tensor, None
        host = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, pin_memory=True)
        if self.mistake != "copy_out_does_not_wait":
            self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            host.copy_(tensor.detach(), non_blocking=True)
        if self.mistake != "source_freed_too_early":
            tensor.record_stream(self.stream)
        figures[str(tensor.device)]["left"] += 1
        return None, host

    def unpack(self, packed):
        tensor, host = packed
        if host is None:
            return tensor
        with torch.cuda.stream(self.stream):
            tensor = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device="cuda")
            tensor.copy_(host, non_blocking=True)
        figures[str(tensor.device)]["in_bytes"] += tensor.nbytes
        if self.mistake != "reader_does_not_wait":
            torch.cuda.current_stream().wait_stream(self.stream)
        if self.mistake != "target_freed_too_early":
            tensor.record_stream(torch.cuda.current_stream())
        return tensor
