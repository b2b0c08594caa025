"""The Kineto importer on documents made by hand: every time regime, generation of categories, and oddity."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deepprof.collectors.importers.kineto import Kineto
from tests.collectors.documents import event, kernel, rows

EPOCH_US = 1_700_000_000_000_000


# Time


def test_integer_microseconds_of_the_epoch(read):
    trace = read([kernel(ts=EPOCH_US + 1, dur=25)])
    assert rows(trace.device_events, "start_ns", "end_ns") == [((EPOCH_US + 1) * 1000, (EPOCH_US + 26) * 1000)]
    assert trace.clock == "unix"


def test_float_microseconds_of_the_epoch(read):
    trace = read([kernel(ts=EPOCH_US + 0.25, dur=1.5)])
    assert rows(trace.device_events, "start_ns", "end_ns") == [(EPOCH_US * 1000 + 250, EPOCH_US * 1000 + 1750)]
    assert trace.clock == "unix"


def test_relative_microseconds_and_a_base(read):
    base = 1_767_189_312_000_000_001
    trace = read([kernel(ts=4026150069145.028, dur=249608.734)], baseTimeNanoseconds=base)
    start = base + 4026150069145028
    assert rows(trace.device_events, "start_ns", "end_ns") == [(start, start + 249608734)]
    assert (trace.clock, trace.notes) == ("unix", ())


def test_a_base_is_not_added_to_absolute_times(read):
    trace = read([kernel(ts=EPOCH_US)], baseTimeNanoseconds=EPOCH_US * 1000 - 5)
    assert trace.device_events["start_ns"].to_list() == [EPOCH_US * 1000]
    assert trace.notes == ("has absolute times beside baseTimeNanoseconds, which was not added",)


@pytest.mark.parametrize("base", ["soon", -5, 10**30, None, [1]])
def test_a_base_that_is_none_is_not_added(read, base):
    trace = read([kernel(ts=5)], baseTimeNanoseconds=base)
    assert trace.device_events["start_ns"].to_list() == [5000]
    assert trace.clock == "session"


def test_a_base_may_be_text(read):
    trace = read([kernel(ts=5)], baseTimeNanoseconds="1700000000000000000")
    assert trace.device_events["start_ns"].to_list() == [1_700_000_000_000_005_000]


@settings(deadline=None)
@given(st.integers(0, 5 * 10**15))
@example(1428625731896179)
def test_nanoseconds_survive_as_far_as_a_float_holds_them(tmp_path_factory, ns):
    path = tmp_path_factory.mktemp("ns") / "trace.json"
    base = 1_700_000_000_123_456_789
    text = json.dumps({"baseTimeNanoseconds": base, "traceEvents": [kernel(ts=0)]})
    path.write_text(text.replace('"ts": 0', f'"ts": {ns // 1000}.{ns % 1000:03}'))
    assert Kineto().read(path).device_events["start_ns"].to_list() == [base + ns]


@pytest.mark.parametrize("literal", ["NaN", "-Infinity", "inf", "-nan", "1e400", "null", '"x"', "[]", "1e18", "{}"])
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_a_time_that_is_none_is_invalid(tmp_path, key, literal):
    path = tmp_path / "trace.json"
    text = json.dumps({"traceEvents": [kernel("good", ts=5), kernel("bad", **{key: 77.5})]})
    path.write_text(text.replace("77.5", literal))
    trace = Kineto().read(path)
    assert [trace.name(i) for i in trace.device_events["name_id"]] == ["good"]
    reason = "undecodable" if literal == "1e400" else "invalid-time"  # msgspec refuses a number beyond float64
    assert trace.accounting.dropped == {reason: 1}


def test_negative_and_missing_times_are_invalid_everywhere(read):
    bare = {"ph": "X", "name": "x", "pid": 1, "tid": 1}
    cats = ["kernel", "gpu_memcpy", "cpu_op", "python_function", "user_annotation", "gpu_user_annotation"]
    trace = read([event(cat, "x", 5, -1) for cat in cats] + [{**bare, "cat": cat} for cat in cats])
    assert (trace.accounting.kept, trace.accounting.dropped) == (0, {"invalid-time": 12})


def test_numbers_may_be_texts(read):
    trace = read([kernel(ts="5.5", dur="2", correlation="12", device="1", stream="9")])
    assert rows(trace.device_events, "start_ns", "end_ns", "correlation", "device", "stream") == [
        (5500, 7500, 12, 1, 9)
    ]


def test_a_text_that_says_nan_stays(tmp_path):
    path = tmp_path / "trace.json"
    names = ["f(x, nan)", 'q\\"uote": inf, [nan]']
    text = json.dumps({"traceEvents": [kernel(name, **{"est. occupancy": float("nan")}) for name in names]})
    path.write_text(text)
    assert Kineto().read(path).names.to_list() == names


# Device events


def test_the_first_generation_of_categories(read):
    args = {"device": 0, "context": 1, "stream": 7, "external id": 5}
    trace = read(
        [
            event("Operator", "aten::add", 1, 9, 25, "25", **{"External id": 2, "Sequence number": 3}),
            event("Runtime", "cudaLaunchKernel", 2, 1, 25, "25", **{"external id": 5, "correlation": 11}),
            event("Kernel", "add", 3, 2, 0, "stream 7", **args, correlation=11),
            event("Memcpy", "Memcpy HtoD (Pageable -> Device)", 5, 1, 0, "stream 7", **args, correlation=12, bytes=64),
            event("Memset", "Memset (Device)", 6, 1, 0, "stream 7", **args, correlation=0, bytes=8),
        ]
    )
    columns = ("activity", "stream", "correlation", "external_id", "nbytes", "copy_kind")
    assert rows(trace.device_events, *columns) == [
        ("kernel", 7, 11, 5, None, None),
        ("memcpy", 7, 12, 5, 64, "HtoD"),
        ("memset", 7, None, 5, 8, None),
    ]
    assert rows(trace.host_events, "category", "process", "thread", "correlation", "external_id", "sequence") == [
        ("op", 25, 25, None, 2, 3),
        ("runtime", 25, 25, 11, 5, None),
    ]
    assert trace.accounting.flagged == {"unlinked": 2}


def test_the_second_generation_of_categories(read):
    trace = read(
        [
            event("cpu_op", "aten::add", 1, 9, 3, 4, **{"External id": 2, "Fwd thread id": 2**63 + 1, "flops": 64}),
            event("cuda_runtime", "cudaGraphLaunch", 2, 1, 3, 4, correlation=9),
            event("cuda_driver", "cuLaunchKernelEx", 3, 1, 3, 4, correlation=10),
            event("hip_runtime", "hipLaunchKernel", 4, 1, 3, 4, correlation=11),
            event("python_function", "f", 5, 1, 3, 4, **{"Python id": 2, "Python parent id": 1, "Python module id": 6}),
            event("overhead", "Lazy Function Loading", 6, 1, -1, 0),
            kernel(ts=5, correlation=9, **{"External id": 2, "graph node id": 77}),
            event("gpu_memset", "Memset (Unknown)", 8, 1, device=0, stream=7, correlation=10),
            event("cuda_sync", "Stream Wait Event", 9, 1, device=0, stream=2**32 - 1, correlation=11),
            event("cuda_sync", "Context Sync", 10, 1, device=0, stream=-1, context=-1),
            event("cuda_sync", "Context Sync", 11, 1, device=0, stream=2**64 - 1),
        ]
    )
    assert rows(trace.device_events, "activity", "stream", "context", "correlation", "external_id", "graph_node") == [
        ("kernel", 7, 1, 9, 2, 77),
        ("memset", 7, None, 10, None, None),
        ("sync", 2**32 - 1, None, 11, None, None),
        ("sync", -1, None, None, None, None),
        ("sync", -1, None, None, None, None),
    ]
    columns = ("category", "correlation", "forward_thread", "flops", "span_id", "parent_id", "module_id")
    assert rows(trace.host_events, *columns) == [
        ("op", None, 1 - 2**63, 64, None, None, None),
        ("runtime", 9, None, None, None, None, None),
        ("runtime", 10, None, None, None, None, None),
        ("runtime", 11, None, None, None, None, None),
        ("python", None, None, None, 2, 1, 6),
        ("overhead", None, None, None, None, None, None),
    ]
    assert trace.accounting.flagged == {}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD"),
        ("MEMCPY DTOH (Device -> Pinned)", "DtoH"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("CopyHostToDevice", "HtoD"),
        ("CopyDeviceToHost", "DtoH"),
        ("CopyDeviceToDevice", "DtoD"),
        ("Memcpy HtoA (Host -> Array)", None),
    ],
)
def test_a_copy_s_name_says_its_kind(read, name, kind):
    trace = read([event("gpu_memcpy", name, 1, 1, bytes=2**40), kernel(name)])
    assert rows(trace.device_events.filter(activity="memcpy"), "copy_kind", "nbytes") == [(kind, 2**40)]
    assert trace.device_events.filter(activity="kernel")["copy_kind"].to_list() == [None]


def test_missing_args_fall_back_to_process_and_thread(read):
    bare = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}
    odd = [None, [], "text", 5, {}, {"device": -1, "stream": "x"}, {"device": 70_000, "context": 2**40}]
    trace = read(
        [{**bare, "pid": 3, "tid": "stream 20", "args": args} for args in odd] + [{**bare, "pid": 3, "tid": 4}]
    )
    assert rows(trace.device_events, "device", "stream", "context") == [(3, 20, None)] * 7 + [(3, 4, None)]


def test_a_kernel_that_is_nowhere_is_invalid(read):
    trace = read([event("kernel", "k", 1, 1, "Spans", "x"), event("kernel", "k", 1, 1, -1, 7)])
    assert trace.accounting.dropped == {"invalid-place": 2}


def test_flags_count_zero_durations_overlaps_and_what_was_not_launched(read):
    launch = event("cuda_runtime", "cudaLaunchKernel", 0, 1, 9, 9, correlation=4)
    spans = [(10, 5), (14, 6), (20, 0), (20, 3)]
    kernels = [kernel(ts=ts, dur=dur, correlation=4) for ts, dur in spans]
    trace = read([launch, *kernels, kernel(ts=11, dur=1, stream=8, correlation=5), kernel(ts=30, correlation=0)])
    assert trace.accounting.flagged == {"unlinked": 2, "zero-duration": 1, "overlapping": 1}


def test_rows_that_start_together_stand_in_launch_order(read):
    spans = [(5, 2, 3), (5, 0, 2), (5, 0, 1), (4, 1, 9)]
    trace = read([kernel(ts=ts, dur=dur, correlation=correlation) for ts, dur, correlation in spans])
    assert trace.device_events["correlation"].to_list() == [9, 1, 2, 3]


def test_names_are_numbered_by_first_use(read):
    trace = read([kernel("a", ts=3), kernel("b", ts=1), kernel("a", ts=2), kernel("größe ∂", ts=9)])
    assert [trace.name(i) for i in trace.device_events["name_id"]] == ["b", "a", "a", "größe ∂"]
    assert len(trace.names) == 3


def test_collectives_point_at_their_kernel(read):
    args = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": 10,
        "Out msg nelems": 20,
        "Group size": 8,
        "Process Group Name": "0",
        "Seq": 41,
    }
    trace = read([kernel("ncclDevKernel_AllReduce", ts=9, **args), kernel(ts=1)])
    assert trace.collectives.rows() == [(1, "allreduce", "Float", 10, 20, "0", 8, 41)]


# Annotations, memory, details


def test_annotations_of_both_sides_and_both_generations(read):
    names = [
        ("user_annotation", "ProfilerStep#4", False),
        ("user_annotation", "Optimizer.step#SGD.step", True),
        ("user_annotation", "nccl:all_reduce", True),
        ("user_annotation", "## forward ##", False),
        ("user_annotation", "## Call CompiledFxGraph abc ##", True),
        ("user_annotation", "Torch-Compiled Region: 0/0", True),
        ("Operator", "ProfilerStep#5", False),
        ("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", True),
        ("Operator", "Optimizer.zero_grad#SGD.zero_grad", True),
    ]
    events = [event(cat, name, ts, 1, 3, "4") for ts, (cat, name, _) in enumerate(names)]
    trace = read([*events, event("Operator", "aten::add", 1, 1), event("gpu_user_annotation", "mine", 50, 2, 1, 7)])
    assert [(trace.name(i), f) for i, f in rows(trace.annotations, "name_id", "framework")] == [
        *((name, framework) for _, name, framework in names),
        ("mine", False),
    ]
    columns = ("start_ns", "end_ns", "side", "process", "thread", "device", "stream")
    assert rows(trace.annotations, *columns)[-2:] == [
        (8000, 9000, "host", 3, 4, None, None),
        (50_000, 52_000, "device", None, None, 1, 7),
    ]
    assert trace.host_events.height == 1


def test_memory_marks(read):
    mark = {"ph": "i", "name": "[memory]", "pid": 5, "tid": 6, "ts": 2.5}
    new = {"Device Type": 1, "Device Id": 3, "Bytes": -512, "Addr": 99, "Total Allocated": 10, "Total Reserved": 20}
    old = {"Device Type": 0, "Device Id": 0, "Bytes": 4}
    trace = read([{**mark, "cat": "cpu_instant_event", "args": new}, {**mark, "args": old}, {**mark, "args": {}}])
    assert trace.memory_events.rows() == [
        (2500, 5, 6, 3, 99, -512, 10, 20),
        (2500, 5, 6, -1, None, 4, None, None),
    ]
    assert trace.accounting.dropped == {"invalid-bytes": 1}


def test_operands_unless_left_out_and_call_stacks_on_request(read):
    shaped = {"Input Dims": [[2, 3], []], "Input type": ["float", "Scalar"], "Call stack": "a.py(1): f;b.py(2): g"}
    concrete = {"Input Strides": [[3, 1], []], "Concrete Inputs": ["", "[1, 1]"]}
    events = [
        event("cpu_op", "second", 2, 1, **shaped, **concrete),
        event("cpu_op", "first", 1, 1, **{"Input dims": [[4]], "Call stack": ""}),
        event("cpu_op", "third", 3, 1, **{"Call stack": "c.py(3): h"}),
        event("cpu_op", "fourth", 4, 1, **{"Call stack": shaped["Call stack"]}),
        event("user_annotation", "odd", 4, 1, **{"Call stack": 7}),
    ]
    trace = read(events, details=True)
    assert trace.operands.rows() == [
        (0, "[[4]]", None, None, None),
        (1, "[[2, 3], []]", '["float", "Scalar"]', '["", "[1, 1]"]', "[[3, 1], []]"),
    ]
    assert trace.host_events["stack_id"].to_list() == [None, 0, 1, 0]
    assert trace.stacks.rows() == [(0, "a.py(1): f;b.py(2): g"), (1, "c.py(3): h")]
    plain = read(events)
    assert plain.operands.equals(trace.operands)
    assert (plain.stacks.height, plain.host_events["stack_id"].null_count()) == (0, 4)
    bare = read(events, shapes=False)
    assert (bare.operands.height, bare.stacks.height, bare.host_events["stack_id"].null_count()) == (0, 0, 4)
    stacks = read(events, details=True, shapes=False)
    assert (stacks.operands.height, stacks.stacks.height) == (0, 2)
