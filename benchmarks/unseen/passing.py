"""Recordings without a loop: requests, marked steps, single passes with layers that repeat, first use, benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from benchmarks.unseen.building import Maker, Model, flatten, launch_cost, total
from benchmarks.unseen.habits import MISTAKES, Job, disturb, draw_job, draw_recorder
from benchmarks.unseen.names import Kernel
from benchmarks.unseen.sketch import FULL, Recorder, Sketch
from benchmarks.unseen.steps import (
    COPY_STREAM,
    Call,
    Close,
    Copy,
    Mark,
    Open,
    Program,
    Shown,
    Step,
    Sync,
    Work,
)
from benchmarks.unseen.vocabulary import (
    BENCHMARK,
    COPY_TO_DEVICE,
    COPY_TO_HOST,
    FIRST_USE,
    HOST_ONLY,
    HOST_WORK,
    LAUNCHING,
    LOOP,
    MARKED_STEP,
    NOTHING,
    SINGLE_PASS,
    START_UP,
    SYNCHRONIZATION,
    TRAINING_LOOP,
)

__all__ = [
    "copy_benchmark",
    "host_only",
    "kernel_benchmark",
    "layered_pass",
    "marked_step",
    "plain_pass",
    "request",
    "start_up",
]

MISTAKES_OF_A_PASS = tuple(name for name in MISTAKES if name != "other thread")
FIRST_CALLS = ("cuModuleLoadData", "cuLibraryLoadData", "cudaFuncGetAttributes", "cudaHostAlloc", "cudaMalloc")
HOST_OPERATORS = {  # with their usual time
    "aten::addmm": 1_500_000,
    "aten::mkldnn_convolution": 2_500_000,
    "aten::relu_": 60_000,
    "aten::native_batch_norm": 80_000,
    "aten::sum": 40_000,
}
RANGES = {
    "aten::addmm": "head",
    "aten::mkldnn_convolution": "backbone",
    "aten::relu_": "nms",
    "aten::sum": "decode",
    "aten::native_batch_norm": "resize",
}


def single(variant: str, kind: str, steps: Sequence[Step], recorder: Recorder, *counts: int) -> Sketch:
    """Return the sketch of a recording that is measured as a whole."""
    return Sketch(variant, kind, (Program(tuple(steps)),), recorder, counts or (0,))


def pass_of(job: Job) -> list[Step]:
    """Return the steps of one pass, without the mark of an iteration."""
    return [step for step in job.maker.steps(job.model, job.habit, 0) if not isinstance(step, Mark)]


def with_host(recorder: Recorder) -> Recorder:
    """Return a recorder that keeps the host's side: kernels that repeat in layers could be a loop to all others."""
    return recorder if recorder.host else replace(recorder, style="nsys", host=True)


def layer(maker: Maker, model: Model, blocks: int) -> Model:
    """Return a deep model: a first layer, blocks that are alike, and a last one."""
    stem, head = (maker.draw_model(kernels, 30_000, training=False).forward for kernels in (4, 6))
    return Model(stem + model.forward * blocks + head, model.backward * blocks, model.update)


def draw_deep(random: Random, *, training: bool, flavour: str | None = None) -> Job:
    """Return a job whose model has blocks that repeat."""
    job = draw_job(random, (8, 40), training=training, flavour=flavour)
    return replace(job, model=layer(job.maker, job.model, random.randint(4, 32)))


def request(random: Random, disturbed: bool) -> Sketch:
    """Draw one request: text becomes numbers, a forward pass, and an answer that is read."""
    job = draw_deep(random, training=False)
    recorder = with_host(draw_recorder(random, job.maker.flavour))
    job = disturb(random, job, random.choice(MISTAKES_OF_A_PASS)) if disturbed else job
    tokens = Work(job.maker.vary(total(job.model) * 0.015), "tokenizer.encode", "range")
    steps = [tokens, *pass_of(job), job.maker.copy("DtoH", 4_000, blocking=True)]
    named = random.random() < 0.5
    steps = [Open("handle_request"), *steps, Close()] if named else steps
    return single("request", SINGLE_PASS, steps, recorder)


def marked_step(random: Random, disturbed: bool) -> Sketch:
    """Draw one step of training that the file marks as one."""
    flavour = random.choice(("pytorch", "compiled", "tensorflow", "xla", "amd"))
    training = random.random() < 0.8
    deep = random.random() < 0.6
    job = draw_deep(random, training=training, flavour=flavour)
    if not deep:
        job = draw_job(random, (100, 500), training=training, flavour=flavour)
    recorder = replace(with_host(draw_recorder(random, flavour, ("operators", "calls"))), ranges=True)
    stray = before_step(random, job) if random.random() < 0.3 else []
    job = disturb(random, job, random.choice(MISTAKES_OF_A_PASS)) if disturbed else job
    names = {"tensorflow": "train 1", "xla": "step[train]#1"}
    name = names.get(flavour, f"ProfilerStep#{random.randint(1, 900)}")
    last: list[Step] = [job.maker.look()] if random.random() < 0.5 else [Sync("cudaDeviceSynchronize")]
    steps = [*stray, Mark(), Open(name), *pass_of(job), *last, Close()]
    on_device = flavour in ("tensorflow", "xla") and recorder.style == "xplane"
    return single("marked step", MARKED_STEP, steps, replace(recorder, device_ranges=on_device))


def before_step(random: Random, job: Job) -> list[Step]:
    """Return a kernel long before the marked step, with which the recording begins."""
    alone = job.maker.launch(job.maker.draw_model(1, 20_000, training=False).forward[0])
    return [alone, Work(random.randint(50_000_000, 500_000_000))]


def plain_pass(random: Random, disturbed: bool) -> Sketch:
    """Draw one forward pass that no one marked and in which nothing repeats."""
    job = draw_job(random, (30, 300), training=False)
    recorder = draw_recorder(random, job.maker.flavour)
    job = disturb(random, job, random.choice(MISTAKES_OF_A_PASS)) if disturbed else job
    return single("forward pass", SINGLE_PASS, [*pass_of(job), Sync()], recorder)


def layered_pass(random: Random, disturbed: bool) -> Sketch:
    """Draw one pass of a deep model, of a mixture of experts or over chunks of one request: layers repeat, no step."""
    job = draw_deep(random, training=random.random() < 0.5)
    form = random.choice(("unrolled", "experts", "chunks"))
    if form == "experts":
        job = replace(job, model=mix_experts(random, job))
    if form == "chunks":
        job = replace(job, model=Model(chunk(random, job.model.forward)))
    recorder = draw_recorder(random, job.maker.flavour, ("ranges", "operators", "calls"))
    recorder = with_host(recorder)
    job = disturb(random, job, random.choice((HOST_WORK, LAUNCHING, SYNCHRONIZATION))) if disturbed else job
    return single(f"{form} pass", SINGLE_PASS, [*pass_of(job), job.maker.look()], recorder)


def mix_experts(random: Random, job: Job) -> Model:
    """Return a model whose layers run another number of experts each time, of other sizes."""
    router, expert, block = (job.maker.draw_model(n, 25_000, training=False).forward for n in (3, 4, 9))
    kernels: list[Kernel] = []
    for _ in range(random.randint(8, 30)):
        kernels += [*block, *router]
        for _ in range(random.randint(1, 8)):
            factor = random.uniform(0.1, 2)
            kernels += [each._replace(ns=max(1_500, round(each.ns * factor))) for each in expert]
    return Model(tuple(kernels))


def chunk(random: Random, kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Return a pass in which one long section is done in chunks."""
    begin, end = len(kernels) // 4, len(kernels) // 2
    pieces = random.randint(3, 12)
    small = tuple(each._replace(ns=max(1_500, each.ns // pieces * 2)) for each in kernels[begin:end])
    return kernels[:begin] + small * pieces + kernels[end:]


def start_up(random: Random, disturbed: bool) -> Sketch:
    """Draw the first passes of a program; its twin is warm, and measured as a single pass."""
    job = draw_deep(random, training=random.random() < 0.5, flavour=random.choice(("pytorch", "native", "compiled")))
    recorder = with_host(draw_recorder(random, job.maker.flavour, ("ranges", "operators")))
    habit = replace(job.habit, phased=False, aside=False)
    job = replace(job, model=job.model.scaled(random.uniform(2, 80)), habit=habit)
    steps = pass_of(job)
    if not disturbed:
        return single("warm pass", SINGLE_PASS, [*steps, Sync()], recorder)
    loads = random.random() < 0.5
    wait = job.maker.load(random.uniform(3e8, 1.2e9)) if loads else []
    context: list[Step] = [Call("cudaFree", random.randint(90_000_000, 400_000_000), FIRST_USE)]
    cold = [each for n, step in enumerate(steps) for each in (*first_use(random, n), step)]
    first = [Open("aten::cudnn_convolution", operator=True), *library(random), *cold[:3], Close()]
    whole = [*context, *wait, *first, *cold[3:], Sync("cudaDeviceSynchronize")]
    return replace(single("start-up", START_UP, whole, replace(recorder, calls=True)), also=(SINGLE_PASS,))


def first_use(random: Random, number: int) -> list[Step]:
    """Return what the first use of a kernel costs before its launch: its module is loaded."""
    if number > 40 or random.random() > 0.5:
        return []
    return [Call(random.choice(FIRST_CALLS), random.randint(300_000, 9_000_000), FIRST_USE)]


def library(random: Random) -> list[Step]:
    """Return how a library begins inside its first call: it frees and takes memory, which drains the device."""
    frees: list[Step] = [
        Call("cudaFree", random.randint(80_000_000, 220_000_000), FIRST_USE, drains=True) for _ in range(2)
    ]
    return [Call("cudaMalloc", random.randint(100_000, 900_000), FIRST_USE), *frees]


def kernel_benchmark(random: Random, disturbed: bool) -> Sketch:
    """Draw a benchmark of one kernel or a few, each repeated alone; its twin waits after every launch."""
    job = draw_job(random, (4, 5), training=False, flavour=random.choice(("native", "pytorch", "amd", "xla")))
    recorder = draw_recorder(random, job.maker.flavour)
    count = random.randint(60, 400)
    several = random.sample(job.model.forward, random.choice((1, 1, 3)))
    short = random.uniform(2_000, 12_000)
    steps: list[Step] = []
    for kernel in several:
        long = max(kernel.ns, 3 * launch_cost(job.maker))
        sized = kernel._replace(ns=max(1_500, round(short if disturbed else long)))
        for _ in range(count // len(several)):
            steps += [job.maker.launch(sized), *([Sync("cudaDeviceSynchronize")] if disturbed else [])]
    steps = [*steps, Sync("cudaDeviceSynchronize")]
    counts = (count, count // len(several), 0)
    return replace(single("kernel benchmark", BENCHMARK, steps, recorder, *counts), also=(LOOP, SINGLE_PASS))


def copy_benchmark(random: Random, disturbed: bool) -> Sketch:
    """Draw copies between host and device: many large ones and a few tiny pageable ones; its twin computes next to."""
    maker = Maker(random, random.choice(("native", "pytorch")))
    recorder = draw_recorder(random, maker.flavour, ("host",))
    direction, pinned = random.choice(("HtoD", "DtoH")), random.random() < 0.7
    nbytes, count = random.randint(4_000_000, 300_000_000), random.randint(12, 300)
    copies: list[Step] = [maker.copy(direction, nbytes, pinned=pinned) for _ in range(count)]
    tiny = [maker.copy("HtoD", random.randint(8, 4_000), pinned=False) for _ in range(random.randint(1, 5))]
    for copy in tiny:
        copies.insert(random.randrange(len(copies)), copy)
    if disturbed:
        return copying(maker, [*copies, Sync()], recorder, count)
    longest = round(copies[0].ns * random.uniform(1.5, 2.5)) if isinstance(copies[0], Copy) else 1
    kernels = [maker.launch(kernel._replace(ns=longest)) for kernel in maker.draw_model(1, 1e4, training=False).forward]
    beside = [each for copy in copies for each in (*kernels, *aside(copy))]
    return copying(maker, [*beside, Sync()], recorder, count)


def aside(step: Step) -> list[Step]:
    """Return a copy on its own stream, without making the host wait."""
    return [replace(step, stream=COPY_STREAM, pinned=True)] if isinstance(step, Copy) else [step]


def copying(maker: Maker, steps: list[Step], recorder: Recorder, count: int) -> Sketch:
    """Return the sketch of a benchmark of copies, where none need be called avoidable."""
    sketch = single("copy benchmark", BENCHMARK, steps, recorder, count, 0)
    return replace(sketch, also=(LOOP, SINGLE_PASS), spoken=(NOTHING, COPY_TO_DEVICE, COPY_TO_HOST))


def host_only(random: Random, disturbed: bool) -> Sketch:
    """Draw a recording of the host alone: steps that are marked or not, or one; its twin waits for data.

    It has the operators of the CPU, or nothing but ranges, as where a profiler could not trace the device.
    """
    count, plain = random.choice((1, random.randint(4, 12))), random.random() < 0.3
    marked, maker = random.random() < 0.6, Maker(random, "native" if plain else "pytorch")
    model = draw_host_model(random)
    shown: Shown = "loader" if random.random() < 0.7 and not plain else "range"
    wait = sum(ns for _, ns in model) * (random.uniform(0.4, 2.5) if disturbed else 0.01)
    parts: list[list[Step]] = []
    for number in range(count):
        inside = [*maker.load(wait, shown), *on_host(maker, model, "range" if plain else "operator")]
        name = f"frame {number}" if plain else f"ProfilerStep#{number}"
        parts.append([Mark(), *([Open(name), *inside, Close()] if marked else inside)])
    recorder = Recorder("nsys", operators=False) if plain else replace(FULL, frames=random.random() < 0.3)
    several = count > 1
    programs = (Program((*flatten(parts), Mark())),)
    counts, base = ((count, 0), "iteration") if several else ((0,), "recording")
    also = (TRAINING_LOOP, LOOP) if several else (MARKED_STEP, SINGLE_PASS)
    return Sketch("ranges only" if plain else "host only", HOST_ONLY, programs, recorder, counts, base, also)


def draw_host_model(random: Random) -> list[tuple[str, int]]:
    """Return operators of the CPU with their time."""
    names = random.choices(list(HOST_OPERATORS), k=random.randint(15, 60))
    return [(name, round(random.uniform(0.3, 1.7) * HOST_OPERATORS[name])) for name in names]


def on_host(maker: Maker, model: Sequence[tuple[str, int]], shown: Shown) -> list[Step]:
    """Return operators of the CPU, with a little of Python between them; or ranges with names of the user's."""
    return [
        step
        for name, ns in model
        for step in (Work(maker.vary(ns), RANGES[name] if shown == "range" else name, shown, NOTHING), Work(4_000))
    ]
