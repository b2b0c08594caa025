"""Bounds against gains: PyTorch programs with a known mistake, before and after the change that a rule advises."""
