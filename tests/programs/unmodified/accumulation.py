"""Gradients of four batches for every step of the optimizer: 50 iterations."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for number in range(200):
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
    (nn.functional.cross_entropy(model(inputs), labels) / 4).backward()
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
