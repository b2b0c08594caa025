"""A small training program: train.py ITERATIONS LOADER_WORKERS. It waits for a line and ends with exit code 7."""

import sys
import threading

import torch
from torch import nn

torch.manual_seed(0)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        ctx.save_for_backward(values)
        return values * values

    @staticmethod
    def backward(ctx, gradient):
        (values,) = ctx.saved_tensors
        return 2 * values * gradient


def evaluate(model, inputs):
    with torch.no_grad():
        return torch.softmax(model(inputs), dim=1).argmax(dim=1)


def main(iterations: int, workers: int) -> int:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(iterations * 4, 8), torch.randn(iterations * 4, 4))
    for number, (inputs, targets) in enumerate(torch.utils.data.DataLoader(data, batch_size=4, num_workers=workers)):
        optimizer.zero_grad()
        loss = Square.apply(model(inputs) - targets).mean()
        loss.backward()
        optimizer.step()
        if number == iterations // 2:
            evaluate(model, inputs)
            thread = threading.Thread(target=evaluate, args=(model, inputs))
            thread.start()
            thread.join()
    print(f"loss {loss.item():.6f}", flush=True)
    print("to the other stream", file=sys.stderr)
    return 7


if __name__ == "__main__":
    sys.stdin.readline()
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
