"""Two runs compared, iteration to iteration and kernel to kernel (`deepprof diff`).

Loops are paired by rank and device, and their times and parts compared; for the pair that got slowest, the kernels of
both iterations are aligned. Everything rests on `Loop.usual`: complete iterations after warm-up.

`pairing` chooses the loops, `loop_changes` compares their times and what the device computes, `stage_changes` and
`layer_changes` what iterations are made of; `template`, `rotation`, `alignment` and `operations` go kernel by kernel;
`code_paths`, `path_times` and `contexts` find the code that changed; `headline` sums up.
"""

from __future__ import annotations

from msgspec.structs import replace

from deepprof.analysis import Analysis
from deepprof.comparison.contexts import compare_contexts
from deepprof.comparison.headline import nothing_to_compare, sum_up
from deepprof.comparison.layer_changes import compare_layers
from deepprof.comparison.loop_changes import (
    compare_copies,
    compare_counts,
    compare_kernels,
    compare_parts,
    compare_times,
    compare_work,
)
from deepprof.comparison.operations import compare_programs
from deepprof.comparison.pairing import RunLoop, pair_loops, side_of
from deepprof.comparison.setting import compare_settings
from deepprof.comparison.stage_changes import compare_stages
from deepprof.comparison.template import take_template
from deepprof.metrics.loop import Loop
from deepprof.render.json import describe_headline
from deepprof.render.wording import CPU, GPU, wording_of
from deepprof.results.comparison_result import Comparison, LoopPair, LoopPlace

__all__ = ["Comparison", "compare"]


def compare(a: Analysis, b: Analysis) -> Comparison:
    """Return how the run `b` differs from the run `a`; without a pair of loops to compare, only the reason."""
    loops, missing = pair_loops(a, b)
    rows = sorted(((_compare_loops(x, y), x, y) for x, y in loops), key=lambda row: -row[0].time.ratio)
    pairs = [row[0] for row in rows]
    headline = nothing_to_compare(missing)
    on_cpu = wording_of(a).on_cpu and wording_of(b).on_cpu
    if rows:
        before, after = side_of(a, rows[0][1]), side_of(b, rows[0][2])
        pairs[0] = _with_details(pairs[0], before, after)
        headline = sum_up(pairs, before, after, CPU if on_cpu else GPU)
    return Comparison(
        a_paths=tuple(trace.path for trace in a.traces),
        b_paths=tuple(trace.path for trace in b.traces),
        headline=headline,
        pairs=tuple(pairs),
        missing=missing,
        a_answer=describe_headline(a),
        b_answer=describe_headline(b),
        differences=compare_settings(a, b),
        on_cpu=on_cpu,
    )


def _compare_loops(a: Loop, b: Loop) -> LoopPair:
    """Return the times and their parts, without comparing kernels."""
    before, after = a.usual, b.usual
    parts = compare_parts(before, after)
    return LoopPair(
        a=LoopPlace(a.rank, a.device, a.stream, a.period),
        b=LoopPlace(b.rank, b.device, b.stream, b.period),
        time=compare_times(before["iteration_ns"], after["iteration_ns"]),
        a_mean_ns=sum(part.a_ns for part in parts),
        b_mean_ns=sum(part.b_ns for part in parts),
        parts=parts,
        counts=compare_counts(before, after),
        stages=compare_stages(a, b),
        work=compare_work(a, b),
    )


def _with_details(pair: LoopPair, a: RunLoop, b: RunLoop) -> LoopPair:
    """Return the pair with the layers, kernels, copies and calling contexts of both iterations."""
    before, after = take_template(a.loop, a.trace), take_template(b.loop, b.trace)
    return replace(
        pair,
        layers=compare_layers(a.loop, b.loop),
        program=compare_programs(before, a.trace.names, after, b.trace.names),
        kernels=compare_kernels(a, b),
        copies=compare_copies(a, b),
        contexts=compare_contexts(a, b),
    )
