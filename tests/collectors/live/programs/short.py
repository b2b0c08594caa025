"""Over before anybody can have asked for anything."""

import torch

for _ in range(7):
    torch.ones(4).sin()
