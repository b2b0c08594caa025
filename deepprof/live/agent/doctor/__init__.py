"""The doctor: reports why records of this machine or of a process do not come, and what to do about it."""

from __future__ import annotations

from deepprof.live.agent.doctor.findings import CheckState, DoctorFinding, DoctorReport
from deepprof.live.agent.doctor.machine import examine_machine
from deepprof.live.agent.doctor.process_checks import examine_process

__all__ = ["CheckState", "DoctorFinding", "DoctorReport", "examine_machine", "examine_process"]
