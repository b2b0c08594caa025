"""A limit on guessing tokens: an address may try ten unknown tokens, and then one every six seconds.

A client that has shown a good token from an address is not delayed by others that guess there: its token passes without
a count.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TypeVar
from urllib.parse import unquote

BURST, REFILL_S = 10.0, 6.0
MAX_ADDRESSES = 4096  # limit for addresses, and for good pairs of address and token


K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _AttemptBudget:
    """The tries that an address has left at `at_s`."""

    left: float
    at_s: float


class TokenAttempts:
    """Counts wrong tokens by address. `clock` returns seconds and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._budgets: OrderedDict[str, _AttemptBudget] = OrderedDict()  # the latest failure last
        self._good: OrderedDict[tuple[str, bytes], None] = OrderedDict()  # the latest use last

    def are_open(self, place: str, proof: bytes) -> bool:
        """Return whether to check a token shown from `place`."""
        if (place, proof) in self._good:
            return True
        budget = self._budgets.get(place)
        return budget is None or self._left(budget) >= 1

    def note_good(self, place: str, proof: bytes) -> None:
        """Remember that a token was good at `place`."""
        _keep(self._good, (place, proof), None)

    def note_wrong(self, place: str, proof: bytes) -> None:
        """Count a wrong token, and forget it if it was good before."""
        self._good.pop((place, proof), None)
        budget = self._budgets.get(place)
        left = BURST if budget is None else self._left(budget)
        _keep(self._budgets, place, _AttemptBudget(max(0.0, left - 1), self.clock()))

    def _left(self, budget: _AttemptBudget) -> float:
        return min(BURST, budget.left + (self.clock() - budget.at_s) / REFILL_S)


def _keep(table: OrderedDict[K, V], key: K, value: V) -> None:
    """Put an entry last, and remove the first where there are too many."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > MAX_ADDRESSES:
        table.popitem(last=False)


def place_of(peer: str) -> str:
    """Return gRPC's name of a peer without its port; for IPv6 its /64 network, as a client has all addresses of it."""
    kind, _, rest = peer.partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return kind[:64]
    host = unquote(rest).rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        ip = ip_address(host)
    except ValueError:
        return host[:64]
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped or ip_network((ip, 64), strict=False))
    return str(ip)
