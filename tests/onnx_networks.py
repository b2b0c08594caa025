"""Networks that are exported for tests, and that no library of theirs has in this form."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

WORDS, LENGTH, WIDTH, HEADS, INNER, LAYERS = 30522, 512, 768, 12, 3072, 6  # as DistilBERT was published


class DistilLayer(nn.Module):
    """Attention and two linear layers, each with a residual connection and a normalisation after it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.attention_norm, self.output_norm = nn.LayerNorm(WIDTH, 1e-12), nn.LayerNorm(WIDTH, 1e-12)
        self.lin1, self.lin2 = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        split = (x.shape[0], x.shape[1], HEADS, WIDTH // HEADS)
        query, key, value = (each(x).view(split).transpose(1, 2) for each in (self.query, self.key, self.value))
        scores = torch.matmul(query / math.sqrt(WIDTH // HEADS), key.transpose(2, 3))
        context = torch.matmul(torch.softmax(scores, -1), value).transpose(1, 2).reshape(x.shape)
        x = self.attention_norm(self.out(context) + x)
        return self.output_norm(self.lin2(nn.functional.gelu(self.lin1(x))) + x)


class DistilBert(nn.Module):
    """DistilBERT without a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, 1e-12)
        self.layers = nn.Sequential(*(DistilLayer() for _ in range(LAYERS)))

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        return self.layers(self.norm(self.words(tokens) + self.positions(places)))


def change_shufflenet(model: nn.Module) -> nn.Module:
    """Replace the blocks of ShuffleNetV2 that split and shuffle channels by residual ones of the same width.

    PRoof's modified network has no shuffles and 1.477 times the operations. What exactly its authors changed is unknown
    here; this is the simplest change that comes near (1.471): a block's pointwise convolutions see all channels, and
    its result is added to its input."""
    for stage in (model.stage2, model.stage3, model.stage4):
        for number, block in enumerate(stage):
            if block.stride == 1:
                stage[number] = ResidualBlock(block.branch2[0].in_channels)
            else:
                stage[number] = JoinedBlock(block)
    return model


class ResidualBlock(nn.Module):
    """A pointwise convolution to half of the width, a depthwise one, and a pointwise one back to the whole width."""

    def __init__(self, half: int) -> None:
        super().__init__()
        self.reduce, self.reduce_norm = nn.Conv2d(2 * half, half, 1, bias=False), nn.BatchNorm2d(half)
        self.depth, self.depth_norm = nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half)
        self.expand, self.expand_norm = nn.Conv2d(half, 2 * half, 1, bias=False), nn.BatchNorm2d(2 * half)

    def forward(self, x: Tensor) -> Tensor:
        y = self.depth_norm(self.depth(torch.relu(self.reduce_norm(self.reduce(x)))))
        return torch.relu(self.expand_norm(self.expand(y)) + x)


class JoinedBlock(nn.Module):
    """A block that halves the image, without its shuffle."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.branch1, self.branch2 = block.branch1, block.branch2

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.branch1(x), self.branch2(x)), 1)
