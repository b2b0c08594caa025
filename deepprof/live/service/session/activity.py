"""The events of all streams of a device, as far as iterations that are not emitted yet need them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deepprof.live.service.session.columns import COPY, FARTHEST_NS, Columns, Int64s, empty, height, join, select
from deepprof.metrics.iteration_table import Activity

HELD = {"start": np.int64, "end": np.int64, "copy": np.uint8, "nbytes": np.int64}


@dataclass(slots=True)
class HeldActivity:
    """Events by start; some that began before `whole_from` were removed although an iteration may need them."""

    rows: Columns = field(default_factory=lambda: empty(HELD))
    whole_from: int = -FARTHEST_NS

    def add(self, events: Columns) -> None:
        """Take events by start, none before those of earlier calls."""
        self.rows = join([self.rows, {name: events[name] for name in HELD}])

    def measured(self) -> Activity:
        """Return the events held, for measuring iterations."""
        rows = self.rows
        htod: Int64s = np.flatnonzero(rows["copy"] == COPY["HtoD"])
        times = (rows["start"], rows["end"], rows["start"][htod], rows["end"][htod])
        return Activity(*times, rows["nbytes"][htod])

    def keep_from(self, time_ns: int) -> None:
        """Remove events that ended by `time_ns`; no later iteration may begin before that time."""
        kept = self.rows["end"] > time_ns
        if not kept.all():
            self.rows = select(self.rows, kept)

    def bound(self, most: int) -> None:
        """Keep the `most` latest events."""
        extra = height(self.rows) - most
        if extra > 0:
            self.rows = {name: values[extra:].copy() for name, values in self.rows.items()}
            self.whole_from = int(self.rows["start"][0])

    def clear(self) -> None:
        """Remove all events: no later iteration reaches back to them."""
        self.rows = empty(HELD)

    @property
    def nbytes(self) -> int:
        """The bytes that the events take."""
        return sum(values.nbytes for values in self.rows.values())
