"""Jobs with several mistakes of known size: the programs behind the mixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from msgspec import structs

from benchmarks.cases.planted import PLANTED, KernelMistakes
from deepprof.simulation.host_problems import LAUNCH_NS, draw_loading
from deepprof.simulation.kernels import name_elementwise, name_gemm
from deepprof.simulation.machine import DEVICE_BYTES_PER_NS
from deepprof.simulation.models import SimulatedModel, draw_model, launch_adam
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import MAIN_STREAM, Call, Close, Copy, HostOperator, Launch, Open, Pause, Reduce, Step
from deepprof.simulation.training import Training, load_in_process, load_prefetched, read_value

__all__ = ["RULES", "Mistakes"]

PINNED_BYTES_PER_NS = 23.5  # of the simulated machine
READS = 4  # of values after a block
READ_NS = 35_000  # what reading a value costs next to what Python does with it
RARE = 8  # one in this many batches is late
RULES = {  # by the mistake it is about
    "data": "input-bound",
    "logs": "host-bound",
    "copies": "copy-bound",
    "reads": "sync-bound",
    "memory": "allocator-bound",
    "wires": "communication-bound",
    "tiny": "small-kernels",
    "moves": "device-copies",
    "launches": "launch-bound",
    "often": "input-bound",
    "rarely": "slow-iterations",
    "growth": "graph-growth",
    "slower": "drift",
    "floats": "wrong-precision",
    "scores": "unfused-attention",
    "chains": "elementwise-chains",
    "turns": "layout-conversions",
    **{name: each.rule for name, each in PLANTED.items()},
}
CALL_NS = 250_000  # of a cudaFree or cudaMalloc of a large block
FREE, MALLOC = (Call(name, CALL_NS, drains=True) for name in ("cudaFree", "cudaMalloc"))

FLASH = "pytorch_flash::flash_"  # in names of fused attention, forward and backward
TIMES_AS_LONG = 8  # products take in float32 on ordinary units what they take in TF32 on an A100
SGEMM, PRODUCT = "ampere_sgemm_128x64_nn", name_gemm("128x128", "nn")
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>"
    "(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)"
)
TURN = (
    "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)2>"
    "(cudnn::ops::nchw2nhwc_params_t<float>, __half const*, __half*)"
)
CHAIN = tuple(  # operators on the same tensor, one after the other
    (f"aten::{op}", name_elementwise(f"at::native::{functor}(at::TensorIteratorBase&)::{{lambda(float)#1}}", arrays=2))
    for op, functor in (
        ("pow", "(anonymous namespace)::pow_tensor_scalar_kernel_impl<float, float>"),
        ("sin", "sin_kernel_cuda"),
        ("sigmoid", "sigmoid_kernel_cuda"),
        ("abs", "abs_kernel_cuda"),
    )
)


def is_product(kernel: str) -> bool:
    """Return whether a kernel is a product or a convolution on matrix units."""
    return "s16816gemm" in kernel or "_implicit_gemm_" in kernel


@dataclass(frozen=True)
class Mistakes(KernelMistakes):
    """How much of the device's computing time each mistake costs; 0 is none. The loss is read in every iteration.

    `data`: the main thread makes the batch. `logs`: Python without a name. `copies`: a large batch, pinned, on the
    main stream. `reads`: values read back after every block. `memory`: blocks freed and allocated anew. `wires`: one
    collective behind the backward pass. `tiny`: kernels of 2.2 µs in the optimizer, this many that they need that long.
    `moves`: copies within the device. `launches`: how much longer than the device computes the host needs to launch.
    `often` and `rarely`: batches are late in half of the iterations, or in one of eight. `growth`: a graph that the
    host walks, longer every time. `slower`: kernels last longer from half of the capture on. These four are means
    over all iterations. `floats`: some products run in float32 on ordinary units. `scores`: attention writes its
    scores, whose softmax takes that long, where the model has attention. `chains`: as many single operators as
    products, four in a row. `turns`: a conversion of layout in front of every product. The others are those of
    `KernelMistakes`.
    """

    data: float = 0.0
    logs: float = 0.0
    copies: float = 0.0
    reads: float = 0.0
    memory: float = 0.0
    wires: float = 0.0
    tiny: float = 0.0
    moves: float = 0.0
    launches: float = 0.0
    often: float = 0.0
    rarely: float = 0.0
    growth: float = 0.0
    slower: float = 0.0
    floats: float = 0.0
    scores: float = 0.0
    chains: float = 0.0
    turns: float = 0.0

    def without(self, name: str) -> Mistakes:
        """Return these mistakes without one: its work is gone, or put right where it has to be done."""
        keeps = name in PLANTED and PLANTED[name].right
        return replace(self, put_right=self.put_right | {name}) if keeps else replace(self, **{name: 0.0})

    def plan(self, request: SimulationRequest) -> RankPlan:
        """Return the program."""
        random = request.random
        model, ns = draw_model(random), draw_loading(random) // 2
        whole, blocks = model.device_ns, len(model.blocks)
        late = self.delay(random, request.iterations, whole)
        data = load_in_process(round(self.data * whole)) if self.data else None
        before = self.copy(whole)
        logs = (Pause(round(self.logs * whole)),) if self.logs else ()
        training = Training(
            model=self.shorten_optimizer(model),
            load=lambda i: (*self.walk(i, request.iterations, whole), *(data or late(ns, i)), *before),
            after_block=(*self.read_block(whole, blocks), *self.move_memory(whole, blocks)),
            end=lambda _: (*read_value(), *logs),
            buckets=((blocks + 1, Reduce(1_000_000, round(self.wires * whole))),) if self.wires else (),
        )
        pace = (1 + self.launches) * whole / (LAUNCH_NS * len(training.model.launches)) if self.launches else 1.0
        wide = self.find_products(model, whole)
        return RankPlan(
            build=lambda i: self.slow_down(
                self.plant(self.surround(self.write_out(training.build(i), *wide), model), model), i, request.iterations
            ),
            pace=max(1.0, pace),
        )

    def find_products(self, model: SimulatedModel, whole_ns: int) -> tuple[float, int]:
        """Return the share of products that run in float32, and the ns of every softmax of attention written out."""
        products = sum(each.ns for each in model.launches if is_product(each.kernel))
        attention = sum(FLASH in each.kernel for each in model.launches)
        single = self.floats * whole_ns / ((TIMES_AS_LONG - 1) * products) if products else 0.0
        return single, round(self.scores * whole_ns / attention) if attention else 0

    def write_out(self, steps: Iterable[Step], single: float, softmax_ns: int) -> Iterator[Step]:
        """Yield the steps, with some products in float32 and attention as single kernels where these are mistakes."""
        due = 0.0  # ns of products that still have to run in float32
        for step in steps:
            if isinstance(step, Launch) and is_product(step.kernel):
                due += single * step.ns
            if not isinstance(step, Launch):
                yield step
            elif is_product(step.kernel) and due >= step.ns / 2:
                due -= step.ns
                yield structs.replace(step, kernel=SGEMM, ns=TIMES_AS_LONG * step.ns)
            elif self.scores and FLASH in step.kernel:
                product = structs.replace(step, op="aten::bmm", kernel=PRODUCT, ns=max(1, step.ns // 2))
                yield from (
                    product,
                    structs.replace(step, op="aten::softmax", kernel=SOFTMAX, ns=max(1, softmax_ns)),
                    product,
                )
            else:
                yield step

    def surround(self, steps: Iterable[Step], model: SimulatedModel) -> Iterator[Step]:
        """Yield the steps, with conversions in front of products and chains behind some, if these are mistakes."""
        products = max(1, sum(is_product(each.kernel) for each in model.launches))
        turn_ns, chain_ns = (round(share * model.device_ns / products) for share in (self.turns, self.chains))
        count = 0
        for step in steps:
            is_one = isinstance(step, Launch) and (is_product(step.kernel) or step.kernel == SGEMM)
            if is_one and turn_ns:
                yield structs.replace(step, op="aten::conv2d", kernel=TURN, ns=turn_ns)
            yield step
            count += is_one
            if is_one and chain_ns and count % len(CHAIN) == 0:
                yield from (structs.replace(step, op=op, kernel=kernel, ns=chain_ns) for op, kernel in CHAIN)

    def delay(self, random: Random, iterations: int, whole_ns: int) -> Callable[[int, int], tuple[Step, ...]]:
        """Return what waits for the batch of iteration n, at least so long; some batches are late."""
        order = random.sample(range(iterations), iterations)
        often, rarely = order[: -(-iterations // 2)], order[: max(1, iterations // RARE)]
        extra = dict.fromkeys(often, self.often * iterations / len(often))
        for index in rarely:
            extra[index] = extra.get(index, 0) + self.rarely * iterations / len(rarely)
        return lambda ns, index: load_prefetched(ns + round(extra.get(index, 0) * whole_ns))

    def walk(self, index: int, iterations: int, whole_ns: int) -> tuple[Step, ...]:
        """Return the host's walk over a graph that every iteration makes longer."""
        ns = round(2 * self.growth * whole_ns * max(0, index) / iterations)
        return (HostOperator("aten::cat", max(1, ns // 8)),) * 8 if ns else ()

    def slow_down(self, steps: Iterable[Step], index: int, iterations: int) -> Iterator[Step]:
        """Yield the steps, in the second half of the capture with slower kernels."""
        factor = 1 + 2 * self.slower * (index >= iterations / 2)
        for step in steps:
            yield structs.replace(step, ns=round(step.ns * factor)) if isinstance(step, Launch) else step

    def copy(self, whole_ns: int) -> tuple[Step, ...]:
        """Return what is copied in front of an iteration."""
        nbytes = round(self.copies * whole_ns * PINNED_BYTES_PER_NS)
        moved = round(self.moves * whole_ns * DEVICE_BYTES_PER_NS)
        batch = (Copy("HtoD", nbytes, pinned=True, stream=MAIN_STREAM),) if nbytes else ()
        return (*batch, *((Copy("DtoD", moved, pinned=True, stream=MAIN_STREAM),) if moved else ()))

    def read_block(self, whole_ns: int, blocks: int) -> tuple[Step, ...]:
        """Return the reading of values after a block."""
        look = round(self.reads * whole_ns / blocks / READS) - READ_NS
        return (*read_value(), Pause(max(2_000, look))) * READS if self.reads else ()

    def move_memory(self, whole_ns: int, blocks: int) -> tuple[Step, ...]:
        """Return the frees and allocations after a block."""
        pairs = max(1, round(self.memory * whole_ns / blocks / (2 * CALL_NS)))
        return (Open("aten::empty", "cpu_op"), *(FREE, MALLOC) * pairs, Close()) if self.memory else ()

    def shorten_optimizer(self, model: SimulatedModel) -> SimulatedModel:
        """Return the model with tiny kernels in its optimizer, if these are a mistake."""
        count = round(self.tiny * model.device_ns / 3_300)  # with the pause before each
        tiny = Launch("aten::mul_", launch_adam(model, 2_200).optimizer[0].kernel, 2_200)
        return structs.replace(model, optimizer=(tiny,) * count) if count else model
