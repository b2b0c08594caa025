"""Rules over metrics: what is wrong, how sure, what it costs, what to do (layer 3).

`judgement` rates a cost, `causes` puts one root cause first, `on_cpu` rewords findings for programs without a device.
"""

from typing import Literal

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")  # ascending
MAX_FINDINGS = 5  # that a report shows unless all are requested: more are a list of symptoms
