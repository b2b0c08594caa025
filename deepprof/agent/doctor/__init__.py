"""The doctor: says what this machine or a process lacks for its records to come, and what to do about it."""

from __future__ import annotations

from deepprof.agent.doctor.findings import CheckState, DoctorFinding, DoctorReport
from deepprof.agent.doctor.machine import examine_machine
from deepprof.agent.doctor.process_checks import examine_process

__all__ = ["CheckState", "DoctorFinding", "DoctorReport", "examine_machine", "examine_process"]
