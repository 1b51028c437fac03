"""vdnn: training inside a memory budget. `vdnn.torch` is for PyTorch programs."""
