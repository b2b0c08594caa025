"""Small programs with a mistake, and the same ones after the change: `changed` is the only difference.

Each function prepares a program and returns what runs one of its iterations. Tensors are larger than a core's cache, so
that operators compute for much longer than the interpreter needs between them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Iteration = Callable[[], object]


def train_block(changed: bool) -> Iteration:
    """Train the feed-forward half of a transformer in float32."""
    model = _feed_forward(512, 2048)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(1024, 512), torch.randn(1024, 512)

    def iterate() -> None:
        with torch.autocast("cpu", torch.bfloat16) if changed else nullcontext():
            outputs = model(inputs)
        _descend(functional.mse_loss(outputs.float(), targets), optimizer)

    return iterate


def train_from_numpy(changed: bool) -> Iteration:
    """Train on data that numpy made, which is float64 unless a type is given."""
    dtype = torch.float32 if changed else torch.float64
    model = _feed_forward(512, 1024).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(768, 512, dtype=dtype), torch.randn(768, 512, dtype=dtype)
    return lambda: _descend(functional.mse_loss(model(inputs), targets), optimizer)


def attend(changed: bool) -> Iteration:
    """Run self-attention that writes its scores to memory."""
    heads, tokens, width = 8, 512, 64
    project, unite = nn.Linear(heads * width, 3 * heads * width), nn.Linear(heads * width, heads * width)
    inputs, mask = torch.randn(2, tokens, heads * width), torch.full((tokens, tokens), -1e9).triu(1)

    def written(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.transpose(-2, -1) / width**0.5
        return torch.softmax(scores + mask, -1) @ value

    attention = partial(functional.scaled_dot_product_attention, attn_mask=mask) if changed else written

    def run() -> Tensor:
        parts = project(inputs).view(2, tokens, 3, heads, width).permute(2, 0, 3, 1, 4)
        return unite(attention(*parts).transpose(1, 2).reshape(2, tokens, heads * width))

    return _without_gradients(run)


def run_gated_chain(changed: bool) -> Iteration:
    """Normalise by the root mean square and gate, in functions of every element."""
    inputs, gates, scale = torch.randn(2048, 1024), torch.randn(2048, 1024), torch.randn(1024)

    def chain(values: Tensor, gate: Tensor) -> Tensor:
        return (values * 0.5 + gate) * torch.relu(gate) * scale + values

    function = torch.compile(chain) if changed else chain
    return _without_gradients(lambda: function(inputs, gates))


def run_written_gelu(changed: bool) -> Iteration:
    """Apply GELU as its formula between two products."""
    first, second = nn.Linear(256, 1024), nn.Linear(1024, 256)
    inputs = torch.randn(2048, 256)

    def gelu(values: Tensor) -> Tensor:
        return 0.5 * values * (1 + torch.tanh(0.7978845608 * (values + 0.044715 * values**3)))

    function = torch.compile(gelu) if changed else gelu
    return _without_gradients(lambda: second(function(first(inputs))))


def update_parameters(changed: bool) -> Iteration:
    """Train with Adam that updates one parameter after the other by several operators."""
    model = nn.Sequential(*(nn.Linear(768, 768) for _ in range(6)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False, fused=changed)
    inputs, targets = torch.randn(32, 768), torch.randn(32, 768)
    return lambda: _descend(functional.mse_loss(model(inputs), targets), optimizer)


def run_permuted_blocks(changed: bool) -> Iteration:
    """Run blocks on images that copy to channels last for norm and product, and back."""
    channels = 96
    blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, channels)) for _ in range(4))
    inputs = torch.randn(4, channels, 56, 56)

    def run() -> Tensor:
        outputs = inputs.contiguous(memory_format=torch.channels_last) if changed else inputs
        for block in blocks:
            values = outputs.permute(0, 2, 3, 1).contiguous()
            layout = torch.channels_last if changed else torch.contiguous_format
            outputs = block(values).permute(0, 3, 1, 2).contiguous(memory_format=layout)
        return outputs

    return _without_gradients(run)


def infer_with_casts(changed: bool) -> Iteration:
    """Run large layers on few rows under autocast, which casts their weights every time; sums stay in float32."""
    layers = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(8))
    inputs = torch.randn(128, 1024)
    if changed:
        layers = layers.bfloat16()

    def run() -> Tensor:
        outputs = inputs
        with nullcontext() if changed else torch.autocast("cpu", torch.bfloat16):
            for layer in layers:
                outputs = outputs + layer(outputs.bfloat16() if changed else outputs)
        return outputs

    return _without_gradients(run)


def infer_with_batch_norm(changed: bool) -> Iteration:
    """Run convolutions of one pixel with batch norm and ReLU of their own."""
    layers = [(nn.Conv2d(64, 64, 1, bias=False), nn.BatchNorm2d(64)) for _ in range(4)]
    parts = [(_fold(*layer) if changed else nn.Sequential(*layer)).eval() for layer in layers]
    inputs = torch.randn(4, 64, 56, 56)

    def run() -> Tensor:
        outputs = inputs
        for part in parts:
            outputs = functional.relu(part(outputs))
        return outputs

    return _without_gradients(run)


def train_indexed_table(changed: bool) -> Iteration:
    """Train a large table that is read by indexing, which makes its gradient an addition by index."""
    table, project = nn.Parameter(torch.randn(50_000, 64)), nn.Linear(64, 32)
    optimizer = torch.optim.SGD([table, *project.parameters()], lr=1e-3)
    indices, targets = torch.randint(0, len(table), (20_000,)), torch.randn(20_000, 32)

    def iterate() -> None:
        rows = table.index_select(0, indices) if changed else table[indices]
        _descend(functional.mse_loss(project(rows), targets), optimizer)

    return iterate


def train_written_loss(changed: bool) -> Iteration:
    """Train a classifier of many classes with the cross entropy as its formula."""
    project = nn.Linear(128, 8192)
    optimizer = torch.optim.SGD(project.parameters(), lr=1e-3)
    inputs, labels = torch.randn(256, 128), torch.randint(0, 8192, (256,))

    def written(logits: Tensor, wanted: Tensor) -> Tensor:
        chosen = functional.one_hot(wanted, logits.shape[-1]).to(logits.dtype)
        return -(chosen * torch.log(torch.softmax(logits, -1) + 1e-9)).sum(-1).mean()

    loss = functional.cross_entropy if changed else written
    return lambda: _descend(loss(project(inputs), labels), optimizer)


def run_written_norm(changed: bool) -> Iteration:
    """Run layers with layer norm as its formula."""
    width = 384
    layer, scale, shift = nn.Linear(width, 128), torch.ones(width), torch.zeros(width)
    inputs = torch.randn(4096, width)

    def written(values: Tensor) -> Tensor:
        centred = values - values.mean(-1, keepdim=True)
        return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5) * scale + shift

    norm = partial(functional.layer_norm, normalized_shape=(width,), weight=scale, bias=shift) if changed else written
    return _without_gradients(lambda: layer(norm(inputs)))


def train_checkpointed(changed: bool) -> Iteration:
    """Train blocks that run a second time in the backward pass; only every second one after the change."""
    blocks = nn.ModuleList(_feed_forward(384, 1536) for _ in range(4))
    optimizer = torch.optim.SGD(blocks.parameters(), lr=1e-3)
    inputs, targets = torch.randn(256, 384), torch.randn(256, 384)

    def iterate() -> None:
        outputs = inputs
        for number, block in enumerate(blocks):
            kept = changed and number % 2
            outputs = block(outputs) if kept else checkpoint(block, outputs, use_reentrant=False)
        _descend(functional.mse_loss(outputs, targets), optimizer)

    return iterate


def multiply_half(changed: bool) -> Iteration:
    """Multiply float16, for which this processor has no instruction."""
    layer = nn.Linear(192, 192, dtype=torch.bfloat16 if changed else torch.float16)
    inputs = torch.randn(256, 192, dtype=layer.weight.dtype)
    return _without_gradients(lambda: layer(inputs))


def _feed_forward(width: int, inner: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))


def _descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _fold(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Module:
    """Return the convolution with the scales and shifts of its batch norm in its own weights."""
    return nn.utils.fusion.fuse_conv_bn_eval(convolution.eval(), norm.eval())


def _without_gradients(run: Iteration) -> Iteration:
    return torch.inference_mode()(run)
