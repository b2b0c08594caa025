"""Three epochs with two loader workers and an evaluation after each: 150 iterations."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
layers = nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10)
model = nn.Sequential(*layers)
optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
data = TensorDataset(torch.randn(3200, 64), torch.randint(0, 10, (3200,)))
for _ in range(3):
    model.train()
    for inputs, labels in DataLoader(data, batch_size=64, shuffle=True, num_workers=2):
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        hits = [(model(inputs).argmax(1) == labels).float().mean().item() for inputs, labels in DataLoader(data, 64)]
    print(f"accuracy {sum(hits) / len(hits):.3f}")
