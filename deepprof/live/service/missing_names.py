"""Names that were lost with the message that brought them: they are replaced, so that the records after it are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deepprof.live.wire.checking import check_batch
from deepprof.live.wire.limits import WireLimits
from deepprof.live.wire.records import CheckedRecords

if TYPE_CHECKING:
    from deepprof.v1 import records_pb2 as pb


def check_after_loss(batch: pb.Batch, limits: WireLimits, known: int, nbytes: int = 0) -> CheckedRecords:
    """Return the records of a batch of a rank that has lost records, and perhaps names. Raises `WireError`.

    `known` names have come before, `nbytes` long. Missing names are replaced by texts that mark them as lost: to find
    iterations it only matters that names differ.
    """
    needed = batch.first_name
    if not batch.names:
        needed = _highest_name(check_batch(batch, limits, limits.names, nbytes)) + 1
    records = check_batch(batch, limits, max(needed, known), nbytes)
    if needed <= known:
        return records
    lost = tuple(f"name-{number}-lost" for number in range(known, needed))
    return replace(records, names=lost + records.names, first_name=known)


def _highest_name(records: CheckedRecords) -> int:
    """Return the highest name id that the records use, -1 for none."""
    used = [
        rows[column].max() for rows in records.tables.values() for column in rows.columns if column.endswith("name_id")
    ]
    return max((int(number) for number in used if isinstance(number, int)), default=-1)
