"""Mangled names spelled out, whatever is among them, and long names cut short."""

from __future__ import annotations

import sqlite3
from time import process_time

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.names import demangle as demangling
from deepprof.collectors.names.demangle import demangle, shorten, with_readable_names
from deepprof.collectors.trace import Accounting, Trace
from tests import manifest
from tests.chance import examples
from tests.patience import PATIENCE_S

MANGLED = "_ZN2at6native13reduce_kernelILi512EfEEvPT0_"
SPELLED = "void at::native::reduce_kernel<512, float>(float*)"
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def bomb(doublings: int) -> str:
    """Return a short name whose parameters are each the pair of the one before: as C++ it has 2**doublings parts."""
    number = [DIGITS[at] if at < 36 else DIGITS[at // 36] + DIGITS[at % 36] for at in range(doublings)]
    return "_Z1f1AIiiE" + "".join(f"S_IS{at}_S{at}_E" for at in number)


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(demangling, "SECONDS", PATIENCE_S)


@pytest.fixture
def workers(monkeypatch):
    """The names that each worker was requested."""
    asked, ask = [], demangling.ask_worker

    def note(names, *rest):
        asked.append(names)
        return ask(names, *rest)

    monkeypatch.setattr(demangling, "ask_worker", note)
    return asked


def trace(*names: str) -> Trace:
    return Trace(path="a", format="b", names=pl.Series("name", names, dtype=pl.String), accounting=Accounting(0, 0))


def test_mangled_names_are_spelled_out_and_others_stay():
    names = pl.Series(
        "name", [MANGLED, "gemm", None, "_Z", "_Zgarbage", MANGLED, "_Z3fooi.kd", "__Z3fooi", "_Z3foo bar"]
    )
    expected = [SPELLED, "gemm", None, "_Z", "_Zgarbage", SPELLED, "foo(int)", "__Z3fooi", "_Z3foo bar"]
    found = demangle(names)
    assert found.to_list() == expected
    assert found.dtype == pl.String
    assert found.name == "name"


def test_nothing_to_do_starts_no_worker(monkeypatch):
    monkeypatch.setattr(demangling, "ask_worker", lambda *_: pytest.fail("a worker was started"))
    for names in ([], ["gemm", None], [f"_Z3fooi{'x' * 5000}"]):
        assert demangle(pl.Series(names, dtype=pl.String)).to_list() == names


def test_a_hostile_name_costs_only_itself(workers):
    names = [MANGLED, bomb(60), "_Z3fooi", bomb(61), "_Z3bari"]
    assert demangle(pl.Series(names)).to_list() == [SPELLED, names[1], "foo(int)", names[3], "bar(int)"]
    assert workers == [names, names[2:], names[4:]]


def test_a_name_that_grows_too_long_stays():
    names = [bomb(14), "_Z3fooi"]  # a quarter of a million characters
    assert demangle(pl.Series(names)).to_list() == [names[0], "foo(int)"]


def test_many_hostile_names_come_to_an_end(workers):
    names = [bomb(60 + at) for at in range(12)] + ["_Z3fooi"]
    assert demangle(pl.Series(names)).to_list() == names
    assert len(workers) == demangling.ATTEMPTS


def test_a_worker_that_hangs_is_given_up(tmp_path, monkeypatch):
    hanging = tmp_path / "worker.py"
    hanging.write_text("import time\nprint('spelled', flush=True)\ntime.sleep(10**6)\n")
    monkeypatch.setattr(demangling, "WORKER", hanging)
    monkeypatch.setattr(demangling, "SECONDS", 0.5)
    assert demangle(pl.Series(["_Z3fooi", "_Z3bari"])).to_list()[1] == "_Z3bari"


@pytest.mark.parametrize("kind", ["P", "A_", "F", "1AI", "N", "S", "T", "DpT_", "XadL_Z1", "Z1", "M1A", "Ul"])
def test_names_that_nest_without_end(kind):
    name = "_Z1f" + (kind * 4000)[:4000] + "i"
    found = demangle(pl.Series([name, "_Z3fooi"])).to_list()
    assert found[1] == "foo(int)"
    assert found[0] == name or "f" in found[0]


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text("_Z0123456789NISTKPRE.$abtu\n\0é", max_size=30).map(lambda text: "_Z" + text), max_size=40))
def test_any_name_gives_a_name(names):
    found = demangle(pl.Series(names, dtype=pl.String))
    assert found.len() == len(names)
    assert found.null_count() == 0
    for name, text in zip(names, found, strict=True):
        assert text == name or ("\n" not in name and len(text) > 0)


def test_without_the_package_names_stay_and_a_note_says_how(monkeypatch):
    monkeypatch.setattr(demangling, "find_spec", lambda _: None)
    found = with_readable_names(trace(MANGLED, "gemm"))
    assert found.names.to_list() == [MANGLED, "gemm"]
    assert len(found.notes) == 1
    assert "`pip install 'deepprof[names]'`" in found.notes[0]
    assert with_readable_names(trace("gemm")).notes == ()


def test_with_the_package_names_are_spelled_out_without_a_note():
    found = with_readable_names(replace(trace(MANGLED, "gemm"), notes=("kept",)))
    assert found.names.to_list() == [SPELLED, "gemm"]
    assert found.notes == ("kept",)


@pytest.mark.parametrize("executable", ["", "/nonexistent/python", "/bin/false"])
def test_where_no_python_starts_names_stay(monkeypatch, executable):
    monkeypatch.setattr(demangling.sys, "executable", executable)
    assert demangle(pl.Series([MANGLED])).to_list() == [MANGLED]


def test_a_worker_that_hangs_is_ended(monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text("import sys, time\nprint('one', flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(demangling, "WORKER", worker)
    monkeypatch.setattr(demangling, "SECONDS", 0.5)
    assert demangle(pl.Series([MANGLED, "_Z3fooi"])).to_list() == ["one", "_Z3fooi"]


@pytest.mark.traces
def test_every_name_of_a_real_profile_is_spelled_out(traces):
    with sqlite3.connect(f"file:{traces / 'nvprof-lm' / 'net.sql'}?mode=ro", uri=True) as database:
        texts = [text for (text,) in database.execute("SELECT value FROM StringTable") if text.startswith("_Z")]
    database.close()
    assert len(texts) == 31
    found = demangle(pl.Series(texts)).to_list()
    assert not any(text.startswith("_Z") for text in found)
    # The short name does not depend on whether the names are spelled out.
    assert [shorten(text) for text in found] == [shorten(text) for text in texts]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, A<char*> >(int, F)",
         "vectorized_elementwise_kernel"),
        (SPELLED, "reduce_kernel"),
        (MANGLED, "reduce_kernel"),
        ("void (anonymous namespace)::elementwise_kernel_with_index<int>(int)", "elementwise_kernel_with_index"),
        ("void at::native::<unnamed>::cunn_SoftMaxForward<8>(float*)", "cunn_SoftMaxForward"),
        ("_ZN2at6native12_GLOBAL__N_14foldIfEEvi", "fold"),
        ("void cutlass::Kernel<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_tn_align8>(Params)",
         "Kernel<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_tn_align8>"),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Main<2> > > >(X)",
         "device_kernel<enable_sm90_or_later<FlashAttnFwdSm90>>"),
        ("void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<int> >(int)",
         "_kernel_agent<ParallelForAgent>"),
        ("void cub::DeviceReduceKernel<cub::DeviceReducePolicy<float>::Policy600>(float*)", "DeviceReduceKernel"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT64x64x16.kd", "Cijk_Ailk_Bljk_HHS_BH_MT64x64x16"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("ncclKernel_Generic_4(ncclDevComm*, unsigned long, ncclWork*)", "ncclKernel_Generic_4"),
        ("void csrMv_kernel<float, float, int=128, int=1>(cusparseCsrMvParams<float, float, float>)", "csrMv_kernel"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("[CUDA memcpy HtoD]", "[CUDA memcpy HtoD]"),
        ("bool operator< <int>(A, B)", "operator<"),
        ("ns::A::operator<(ns::A const&) const", "operator<"),
        ("std::ostream& std::operator<< <char>(std::ostream&, char)", "operator<<"),
        ("ns::A::operator->() const", "operator->"),
        ("Functor::operator()(int) const", "Functor::operator()"),
        ("Foo::operator float() const", "operator float"),
        ("gpu_kernel(int)::{lambda(float)#1}::operator()(float) const", "gpu_kernel::lambda"),
        ("add_cuda(at::Iter&)::'lambda'()::operator()() const::'lambda2'(float)", "add_cuda::lambda"),
        ("void f<(1 < 2), (int)3>(int)", "f"),
        ("decltype(auto) g<int>(int)", "g"),
        ("std::enable_if<((A<3>::v) > 2), void>::type h<int>(int)", "h"),
        ("foo[abi:cxx11](int) [clone .isra.0]", "foo"),
        ("void foo<int, bar", "foo"),
        ("void foo(int", "foo"),
        ("", "unknown"),
        (" \t", "unknown"),
        ("<>", "<>"),
        ("::", "::"),
        ("_ZTV", "_ZTV"),
    ],
)  # fmt: skip
def test_short_names(name, short):
    assert shorten(name) == short


@given(
    st.text()
    | st.lists(st.sampled_from([*"<>(){}[],:' 0", "::", "operator", "a", "lambda", "Kernel", "->"])).map("".join)
)
@example("Kernel<0")
@example("Kernel<Kernel<a<(0")
def test_a_short_name_is_never_empty_and_no_longer(name):
    short = shorten(name)
    assert short
    assert len(short) <= max(len(name), len("unknown"))


@pytest.mark.parametrize("part", ["<(", "<", "(", "operator ", "a::", "Kernel<", "operator a ", "'lambda'", "1A", ")>"])
def test_long_names_take_no_time(part):
    start = process_time()
    for name in (part * 30_000, part * 30_000 + ")>" * 30_000, "_Z" + part * 30_000):
        assert shorten(name)
    assert process_time() - start < 60  # a square of 60,000 would take minutes


@pytest.mark.traces
@pytest.mark.parametrize("row", manifest.rows("kineto-json")[:6])
def test_real_names_lose_what_is_beside_the_point(traces, row):
    from deepprof.collectors import importers

    found = importers.read(manifest.path_of(row))
    kernels = found.device_events.filter(pl.col("activity") == "kernel")["name_id"].unique()
    for name in found.names.gather(kernels):
        short = shorten(name)
        assert short.removesuffix("::lambda").split("<")[0] in name
