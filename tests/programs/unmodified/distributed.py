"""Data-parallel over gloo, started by torchrun: 120 iterations on each rank."""

import torch
import torch.distributed
from torch import nn

torch.distributed.init_process_group("gloo")
torch.manual_seed(torch.distributed.get_rank())
torch.set_num_threads(1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(120):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,))).backward()
    optimizer.step()
torch.distributed.destroy_process_group()
