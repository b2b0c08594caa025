"""Messages that replace others: a gap for records that are missing, and names without records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, Gap

# In one message: any daemon accepts that, even if its owner has lowered its limits.
TEXTS = 8192
TEXTS_NBYTES = 2 << 20


def make_gap(first: int, lost: int, reason: str) -> SendRequest:
    """Return the gap message for `lost` missing records from `first` on; 0: unknown how many."""
    return SendRequest(gap=Gap(first=first, lost=lost, reason=reason))


def make_names(first: int, first_name: int, texts: Sequence[str]) -> Iterator[SendRequest]:
    """Yield batches without records before record `first`, which contain `texts` as the names from `first_name` on.

    They do not raise the watermark.
    """
    for part in _split_texts(texts):
        yield SendRequest(batch=Batch(first=first, first_name=first_name, names=part))
        first_name += len(part)


def _split_texts(texts: Sequence[str]) -> Iterator[list[str]]:
    """Cut a list of texts into pieces that fit into a message each."""
    part: list[str] = []
    nbytes = 0
    for text in texts:
        length = len(text.encode())
        if part and (len(part) == TEXTS or nbytes + length > TEXTS_NBYTES):
            yield part
            part, nbytes = [], 0
        part.append(text)
        nbytes += length
    if part:
        yield part
