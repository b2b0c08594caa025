"""A small transformer with clipped gradients, which states its loss now and then: 100 iterations."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
model = nn.Sequential(nn.Embedding(100, 32), nn.TransformerEncoder(layer, 2), nn.Linear(32, 100))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for number in range(100):
    tokens = torch.randint(0, 100, (4, 16))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).view(-1, 100), tokens.view(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if number % 20 == 0:
        print(number, loss.item())
