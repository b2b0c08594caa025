"""A queue in which callers take turns, so that no caller waits until all items of another one are done."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def _always(*_: Any) -> bool:
    return True


class FairQueue(Generic[T]):
    """A queue of items in which owners take turns, and the jobs of one owner too; items of one job keep their order.

    Adding and taking cost the same however many items there are. Not safe for threads by itself.
    """

    def __init__(self) -> None:
        self._owners: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._owners)

    def __iter__(self) -> Iterator[T]:
        return (item for jobs in self._owners.values() for items in jobs.values() for item in items)

    def add(self, owner: str, job: str, item: T) -> None:
        """Put an item after the others of its job."""
        self._owners.setdefault(owner, OrderedDict()).setdefault(job, deque()).append(item)

    def discard(self, owner: str, job: str, item: T) -> None:
        """Remove an item, wherever it is; one that is not in the queue is ignored."""
        items = self._owners[owner].get(job) if owner in self._owners else None
        if items is not None and item in items:
            items.remove(item)
            self._tidy(owner, job)

    def take(
        self,
        fits: Callable[[T], bool] = _always,
        owner_fits: Callable[[str], bool] = _always,
        job_fits: Callable[[str, str], bool] = _always,
    ) -> T | None:
        """Remove and return the item whose turn it is among those that fit; None where there is none."""
        for owner in filter(owner_fits, self._owners):
            for job in self._owners[owner]:
                item = next(filter(fits, self._owners[owner][job]), None) if job_fits(owner, job) else None
                if item is not None:
                    self._owners[owner][job].remove(item)
                    self._pass_on(owner, job)
                    return item
        return None

    def _pass_on(self, owner: str, job: str) -> None:
        self._owners[owner].move_to_end(job)
        self._owners.move_to_end(owner)
        self._tidy(owner, job)

    def _tidy(self, owner: str, job: str) -> None:
        if not self._owners[owner][job]:
            del self._owners[owner][job]
        if not self._owners[owner]:
            del self._owners[owner]
