"""vdnn: training inside a memory budget. `vdnn.torch` does it for PyTorch programs."""
