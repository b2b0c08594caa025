"""An LSTM with a learning rate that falls: 80 iterations."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model, head = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 5)
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
for _ in range(80):
    inputs = torch.randn(8, 20, 32)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(head(model(inputs)[0]), torch.zeros(8, 20, 5))
    loss.backward()
    optimizer.step()
    schedule.step()
