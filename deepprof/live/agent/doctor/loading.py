"""Which libraries a process has loaded, and why ours may not be among them."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.live.agent.doctor.findings import DoctorFinding, note, ok, wrong
from deepprof.live.agent.doctor.inspected_process import InspectedProcess

LOADER = r"ld-linux|ld64\.so|ld-\d|ld\.so"
MUSL = r"ld-musl|libc\.musl"
OTHERS = {  # profilers that may hold the driver, by their libraries
    r"libToolsInjection": "Nsight Systems",
    r"libcuda-injection|libnv-cuda-injection": "Nsight Compute",
}
BESIDE = {  # profilers that do not use NVIDIA's driver, and may be intended
    r"librocprofiler-sdk-tool|librocprofv3": "rocprofv3",
    r"librpd_tracer": "rpd_tracer",
    r"libVTune|libittnotify_collector": "VTune",
}
DRIVER, TORCH = r"libcuda\.so", r"libtorch(_cpu|_cuda|_hip)?\.so"


def examine_libraries(suspect: InspectedProcess) -> Iterator[DoctorFinding]:
    """Yield whether our library is loaded, why not, and which other profilers are there."""
    if suspect.has_ours:
        yield ok("library", "loaded into the process")
    elif suspect.socket:
        yield _explain_absence(suspect)
    cupti = suspect.find(r"libcupti\.so")
    if cupti and suspect.find(DRIVER):
        yield ok("CUPTI", cupti)
    elif suspect.has_ours and suspect.find(DRIVER):
        yield note(
            "CUPTI", "not loaded into it", "without it no kernel is seen; deepprof doctor says where it could be"
        )
    for pattern, name in OTHERS.items():
        if suspect.find(pattern):
            advice = "the driver may serve one alone (up to CUDA 13.2 it does): start the job without the other"
            yield wrong("another profiler", f"{name} is in the process", advice)
    for pattern, name in BESIDE.items():
        if suspect.find(pattern):
            yield note("another profiler", f"{name} is in the process", "where records are missing, try without it")


def _explain_absence(suspect: InspectedProcess) -> DoctorFinding:
    """Return why a process that was started by us has not loaded our library."""
    if suspect.find(MUSL):
        return wrong("library", "its C library is musl, and ours needs glibc", "run the job in an image with glibc")
    if suspect.maps and not suspect.find(LOADER):
        return wrong("library", "the program is statically linked: nothing can be loaded into it", "use a dynamic one")
    if suspect.find(DRIVER):
        why = "the driver is in the process and has not loaded it: CUDA was begun before, or by another tool"
        return wrong("library", why, "see what else sets CUDA_INJECTION64_PATH; deepprof doctor says if it can load")
    if suspect.find(TORCH):
        why = "PyTorch is in the process and has not asked for it: built without ITT, or our hook did not run"
        return wrong("library", why, "PyTorch for x86-64 Linux has ITT; on others give the job a GPU, or use attach()")
    if suspect.children:
        return note("library", "neither the driver nor PyTorch is in it", "it may only start others")
    return note("library", "neither the driver nor PyTorch is in it yet", "look again when it trains")
