"""What a backend of inference states about one run of a model: its layers, their tensors and times."""

from __future__ import annotations

from enum import StrEnum
from math import prod

from msgspec import Struct

from deepprof.collectors.models.graph import TYPE_BITS


class LayerRole(StrEnum):
    """What a layer of a backend is, by the backend's own name of its kind."""

    PRODUCT = "product"  # one convolution or product of matrices, and what is fused into it
    ATTENTION = "attention"  # two products with a softmax between them, and maybe those of its projections
    FUSED = "fused"  # code made for whatever operators it was fused from
    CONVERSION = "conversion"  # changes the type or the order of a tensor's elements, which the model does not request
    OTHER = "other"


class BackendTensor(Struct, frozen=True):
    """A tensor as a backend has it; `shape` and `dtype` (a key of `TYPE_BITS`) are None where it does not state."""

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None

    @property
    def elements(self) -> int | None:
        """How many elements it has."""
        return None if self.shape is None else prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        """How many bytes its elements take."""
        bits = TYPE_BITS.get(self.dtype or "")
        return None if self.shape is None or bits is None else (prod(self.shape) * bits + 7) // 8


class BackendLayer(Struct, frozen=True):
    """One layer that a backend executes in every run.

    `time_ns` is what it takes in one run, None where the backend has not timed it. `originals` are the names of the
    model's operators that the backend states it was made of, none where it does not state. `dtype` is the type that it
    computes in.
    """

    name: str
    kind: str
    role: LayerRole
    time_ns: int | None
    inputs: tuple[BackendTensor, ...] = ()
    outputs: tuple[BackendTensor, ...] = ()
    originals: tuple[str, ...] = ()
    dtype: str | None = None

    @property
    def tensors_nbytes(self) -> int | None:
        """The bytes of all its tensors, None where the size of one is unknown."""
        sizes = [tensor.nbytes for tensor in (*self.inputs, *self.outputs)]
        known = [size for size in sizes if size is not None]
        return sum(known) if sizes and len(known) == len(sizes) else None


class BackendProfile(Struct, frozen=True):
    """One model on one backend, with inputs of one shape: its layers in the order in which they run.

    `latency_ns` is the time of a run from end to end, None where it was not measured. `average` states what times are
    over the runs: `median` or `mean`. `counted_nbytes` are the bytes that one run moved between the last cache and the
    memory as the device counts them, None where it does not; `uncounted_reason` is why, without a full stop.
    """

    backend: str
    version: str
    device: str
    batch: int
    runs: int
    latency_ns: int | None
    average: str
    layers: tuple[BackendLayer, ...]
    counted_nbytes: int | None = None
    uncounted_reason: str | None = None

    @property
    def layers_ns(self) -> int:
        """The time of all layers in one run."""
        return sum(layer.time_ns or 0 for layer in self.layers)
