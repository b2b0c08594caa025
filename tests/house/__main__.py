"""`python -m tests.house`: the figures of the source code, next to where they began and the most that is allowed.

`--lower` writes the present figures down as the new limits, where they are lower. Raising one is an edit of limits.json
that states its reason in the commit.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.house.figures import measure
from tests.house.limits import LIMITS, Limit, find_raised, read_limits
from tests.house.plain_words import count_frequent
from tests.house.source import read_modules


def main() -> None:
    """Print the table; exit with 1 where a figure is above its limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--lower", action="store_true", help="lower the limits to the present figures")
    given = parser.parse_args()
    figures, limits = measure(read_modules()) | count_frequent(), read_limits()
    sys.stdout.write("\n".join([*write_table(figures, limits), ""]))
    if given.lower:
        lowered = {
            name: {"began": each.began, "limit": min(each.limit, figures[name])} for name, each in limits.items()
        }
        LIMITS.write_text(json.dumps(lowered, indent=2) + "\n")
    if raised := find_raised(figures, limits):
        sys.exit("\n".join(raised))


def write_table(figures: dict[str, int], limits: dict[str, Limit]) -> list[str]:
    """Return the lines of the table."""
    rows = [f"{'':38}{'began':>9}{'limit':>9}{'now':>9}{'change':>9}"]
    for name, limit in limits.items():
        change = (figures[name] - limit.began) / limit.began if limit.began else 0.0
        rows.append(f"{name:38}{limit.began:>9,}{limit.limit:>9,}{figures[name]:>9,}{change:>+9.1%}")
    return rows


if __name__ == "__main__":
    main()
