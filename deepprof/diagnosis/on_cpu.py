"""Reword findings on a program without a device: the rules' phrases on kernels and devices do not fit it.

The rules are the same, because operators take the place of kernels (`metrics.operators`); only the wording differs, and
advice on devices is replaced. The patterns are phrases of the rules. A test checks that no word for a device is left in
any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from deepprof.diagnosis.finding import Finding

TIME = r"[\d.]+ [mµ]?s"
# The more specific before the more general.
PHRASES: tuple[tuple[str, str], ...] = (
    # host-bound
    (r"The device waits while the host does other work", "The program does other work than computing"),
    (r"The device waits while the host is in", "No operator runs while the program is in"),
    (
        r"the device is idle, and the host neither launches, waits nor loads data: it does other work",
        "no operator runs and no data is loaded: the program does other work",
    ),
    (
        r"what the host does between the last kernel of an iteration and the first of the next",
        "what the program does while no operator runs",
    ),
    # advice on work of the host (host_work)
    (
        r"it sets values of tensors on the host: create them .*what repeats\.",
        "set values once, outside of what repeats.",
    ),
    (r"it makes a value of the device's results on the host: keep it on the device, or read it", "read values"),
    (
        r"before the device needs it \(in workers of a data loader, in a thread ahead\)",
        "ahead (in a data loader's workers)",
    ),
    (
        r"do it before or while the device works \([^)]*\), or less often",
        "do it in another thread or process, or less often",
    ),
    # other-thread
    (r"(The|the) launching thread", r"\1 main thread"),
    (
        r"the device is idle, and the thread that launches its work waits",
        "no operator runs, and the main thread waits",
    ),
    (r", or after the launches that do not depend on it", ""),
    (r"of the device's work", "of all operators' time"),
    (r", launch shape and place become", " and place become"),
    # input-bound
    (r"The device waits for data", "The program waits for data"),
    (r"the device is idle while the host loads data", "no operator runs while data is loaded"),
    (r"ahead of time or on the device", "ahead of time"),
    (r", pin_memory=True", ""),
    # graph-growth
    (
        rf"The device waits ({TIME}) before an iteration at the end of the trace and waited ({TIME}) at its start",
        r"Before an iteration no operator runs for \1 at the end of the trace and for \2 at its start",
    ),
    (r" and copies fill \d+ % of the wait", ""),
    (rf"the device idles for ({TIME}) of an iteration", r"no operator runs for \1 of an iteration"),
    (r" torch\.cuda\.memory\._record_memory_history\(\) shows where it was allocated\.", ""),
    # slow-iterations, drift, straggler
    (
        r"Look at clocks, temperature and power (over time )?\([^)]*\) and at other jobs on the same device\.",
        r"Look \1at other processes on the same cores, at how many threads compute, and at clock limits.",
    ),
    (r"Some iterations wait for the host", "The program does other work in some iterations"),
    (r"waiting for the host", "other work than computing"),
    (r"The host becomes slower", "What is done between operators becomes slower"),
    (r"Look at the host over time: other processes on its cores", "Look over time at other processes on its cores"),
    (r"waits for its host", "does other work"),
    (r"\bof its host\b", "of its machine"),
    (r"Its host is slower than the others'", "Its machine is slower than the others'"),
    (r"Compare its clocks, power and temperature with the others' \([^)]*\)", "Compare its clocks with the others'"),
    (r"look for another process on the device", "look for other processes on its cores"),
    (r"replace or drain the device", "replace or drain the machine"),
    (r", and record the host's side \(operators, runtime calls\)", ""),
    (
        r"a longer recording with the host's side \(operators, runtime calls\) shows more",
        "a longer recording shows more",
    ),
    # growing-context
    (r"of work on the device", "of computing"),
    # capture-incomplete
    (r"activities=\[CPU, CUDA\]", "activities=[CPU]"),
    (r"why the device waits", "why no operator runs"),
    # phrases of several rules
    (r"device events", "operators"),
    (r"device memory", "memory"),
    (r"\b([Tt])he host\b", r"\1he program"),
    (r"\bkernel(?=s?\b)", "operator"),
)
COMPILED = tuple((re.compile(pattern), words) for pattern, words in PHRASES)
# Words that a report on a CPU program must not contain.
DEVICE_WORDS = re.compile(
    r"(?i)\b(?:kernels?|devices?|gpus?|cuda|streams?|nvidia|nvidia-smi|rocm|launch\w*|host(?!-bound)|pcie?)\b"
)


def say_for_cpu(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with their texts in the words of a program without a device."""
    return [
        replace(
            finding,
            title=speak_of_cpu(finding.title),
            summary=speak_of_cpu(finding.summary),
            advice=speak_of_cpu(finding.advice),
        )
        for finding in findings
    ]


def speak_of_cpu(text: str) -> str:
    """Return one text in the words of such a program; the program's own names stay unless a phrase matches them."""
    for pattern, words in COMPILED:
        text = pattern.sub(words, text)
    return text
