"""Bounds against gains: PyTorch programs with a recognized mistake, before and after the change that a rule advises."""
