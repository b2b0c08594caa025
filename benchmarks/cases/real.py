"""Real traces whose verdict is known from their authors, or from figures that anyone can count in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.cases.case import HEALTHY, Case
from deepprof.collectors.trace import Trace
from deepprof.job import read_job

__all__ = ["LABELS", "cases"]

TRACES = Path(os.environ.get("DEEPPROF_TRACES", Path(__file__).resolve().parents[2] / "../shared/traces"))
LABELS: dict[str, tuple[str, ...]] = {
    # PyTorch's samples with num_workers=0 and 4, and their own remarks on them
    "tb-resnet50-nw0": ("input-bound",),
    "tb-resnet50-nw0-c": ("input-bound",),
    "tb-resnet50-autograd-nw0": ("input-bound",),
    "tb-resnet50-nw4": ("wrong-precision", "normalization-bound"),  # float32, batch norm in NCHW
    # a fifth of the time the queue is empty; it computes as the one before
    "tb-resnet50-nw4-d": ("launch-bound", "wrong-precision", "normalization-bound"),
    # small models on fast devices: the device is idle for most of the time and the host never waits
    "hta-nccl-parser": ("launch-bound",),
    "param-linear": ("launch-bound",),
    "hta-gpu-annot": ("launch-bound",),
    "cs336-zx-base": ("launch-bound", "sync-bound"),
    # collectives run alone for most of the time
    "tl-resnet-ckpt": ("communication-bound",),
    "hta-cpu-only": ("communication-bound",),
    # On its first device 28 % of the time; on the second, which the others wait for, half of it is adding to rows.
    "jaxtb-maxtext-fsdp4": ("communication-bound", "embedding-bound"),
    # busy for more than 95 % of an iteration, 91 % of that with float32 products on ordinary units of an A100
    "cs336-zx-2_7B": ("wrong-precision",),
    "cs336-zx-2_7B-nvtx": ("wrong-precision",),
    "cs336-zx-2_7B-clean": ("wrong-precision",),
    # busy for more than 95 % of an iteration, and its kernels show nothing to gain
    "cs336-zx-2_7B-compile": (HEALTHY,),
    "tl-flux-sage": (HEALTHY,),
    # five kernels, then 20 ms of Python on eight devices
    "tl-jax-conv-08": ("host-bound",),
    # one marked step, in which the device waits for launches for most of the time and the host never waits
    "tl-h100-falcon": ("launch-bound",),
    "tl-mi300-falcon": ("launch-bound",),
    "tl-b200-eager": ("launch-bound",),
    # one marked step, busy: norms, rotary embeddings and activations as single operators
    "tl-h100-qwen": ("elementwise-chains",),
    "tl-mi300-qwen": ("elementwise-chains",),
    # nothing repeats often enough, and no step is marked that waits: no headline
    "tl-sglang-prefilldecode": (HEALTHY,),
    "tl-vllm-pd-piecewise": (HEALTHY,),
    "tl-vllm-decode-capture": (HEALTHY,),
    "tl-norm": (HEALTHY,),
    "hta-alexnet-cp": (HEALTHY,),
    "hta-event-sync": ("host-bound",),  # one marked step of four kernels, 69 % of which is a first aten::empty
    "hta-mtia-infer": (HEALTHY,),
    # one kernel 11,000 times; every 100 of them the host copies the result, which takes half of the time of all
    "nvprof-csv-stencil2d": ("slow-iterations", HEALTHY),
    "nvprof-csv-batchcublas": (HEALTHY,),
    "nvprof-csv-cg": (HEALTHY,),
    "rpd-matmul": (HEALTHY,),
}


def cases(traces: Path = TRACES) -> Iterator[Case]:
    """Yield a case per directory of labelled traces."""
    for name, (label, *also) in LABELS.items():
        yield Case("Real traces", name, label, partial(load, traces / name), tuple(also))


def load(path: Path, _: Path) -> list[Trace]:
    """Read the traces in a directory as one job."""
    return read_job(path, jobs=1)
