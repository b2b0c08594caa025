"""The doctor: says what this machine or a process lacks for its records to come, and what to do about it."""

from __future__ import annotations

from deepprof.live.agent.doctor.findings import CheckState, DoctorFinding, DoctorReport
from deepprof.live.agent.doctor.machine import examine_machine
from deepprof.live.agent.doctor.process_checks import examine_process

__all__ = ["CheckState", "DoctorFinding", "DoctorReport", "examine_machine", "examine_process"]
