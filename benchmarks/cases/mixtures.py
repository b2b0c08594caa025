"""Jobs with several mistakes of known size: the programs behind the mixtures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deepprof.simulation.host_problems import draw_loading
from deepprof.simulation.kernels import Launch
from deepprof.simulation.models import Model, draw_model, launch_adam
from deepprof.simulation.plan import Plan, Request
from deepprof.simulation.steps import MAIN_STREAM, Call, Close, Copy, Open, Pause, Reduce, Step
from deepprof.simulation.training import Training, load_in_process, load_prefetched, read_value

__all__ = ["Mistakes"]

PINNED_BYTES_PER_NS = 23.5  # of the simulated machine
READS = 4  # of values after a block
READ_NS = 35_000  # what reading a value costs beside what Python does with it
CALL_NS = 250_000  # of a cudaFree or cudaMalloc of a large block
FREE, MALLOC = (Call(name, CALL_NS, drains=True) for name in ("cudaFree", "cudaMalloc"))


@dataclass(frozen=True)
class Mistakes:
    """How much of the device's computing time each mistake costs; 0 is none. The loss is read in every iteration.

    `data`: the main thread makes the batch. `logs`: Python without a name. `copies`: a large batch, pinned, on the
    main stream. `reads`: values read back after every block. `memory`: blocks freed and allocated anew. `wires`: one
    collective behind the backward pass. `tiny`: kernels of 2.2 µs in the optimizer, so many that they take that long.
    """

    data: float = 0.0
    logs: float = 0.0
    copies: float = 0.0
    reads: float = 0.0
    memory: float = 0.0
    wires: float = 0.0
    tiny: float = 0.0

    def plan(self, request: Request) -> Plan:
        """Return the program."""
        random = request.random
        model, ns = draw_model(random), draw_loading(random) // 2
        whole, blocks = model.device_ns, len(model.blocks)
        data = load_in_process(round(self.data * whole)) if self.data else load_prefetched(ns)
        copy = Copy("HtoD", round(self.copies * whole * PINNED_BYTES_PER_NS), pinned=True, stream=MAIN_STREAM)
        logs = (Pause(round(self.logs * whole)),) if self.logs else ()
        training = Training(
            model=self.shorten_optimizer(model),
            load=lambda _: (*data, *((copy,) if self.copies else ())),
            after_block=(*self.read_block(whole, blocks), *self.move_memory(whole, blocks)),
            end=lambda _: (*read_value(), *logs),
            buckets=((blocks + 1, Reduce(1_000_000, round(self.wires * whole))),) if self.wires else (),
        )
        return Plan(build=training.build)

    def read_block(self, whole_ns: int, blocks: int) -> tuple[Step, ...]:
        """Return the reading of values after a block."""
        look = round(self.reads * whole_ns / blocks / READS) - READ_NS
        return (*read_value(), Pause(max(2_000, look))) * READS if self.reads else ()

    def move_memory(self, whole_ns: int, blocks: int) -> tuple[Step, ...]:
        """Return the frees and allocations after a block."""
        pairs = max(1, round(self.memory * whole_ns / blocks / (2 * CALL_NS)))
        return (Open("aten::empty", "cpu_op"), *(FREE, MALLOC) * pairs, Close()) if self.memory else ()

    def shorten_optimizer(self, model: Model) -> Model:
        """Return the model with tiny kernels in its optimizer, if these are a mistake."""
        count = round(self.tiny * model.device_ns / 3_300)  # with the pause before each
        tiny = Launch("aten::mul_", launch_adam(model, 2_200).optimizer[0].kernel, 2_200)
        return replace(model, optimizer=(tiny,) * count) if count else model
