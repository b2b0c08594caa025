"""The roofline as a file: SVG, one HTML page, and its table as JSON or CSV."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from io import BytesIO
from pathlib import PurePath

import msgspec
import polars as pl

from deepprof.collectors.errors import UsageError
from deepprof.plurals import counted
from deepprof.render.plain import printable
from deepprof.render.roofline.picture import RooflinePicture, RooflinePoint
from deepprof.render.roofline.rates import format_flops_rate, format_intensity
from deepprof.render.roofline.svg import STYLE, draw_roofline_svg
from deepprof.render.tabular import write_table
from deepprof.render.units import ABSENT, format_duration, format_ratio

SCHEMA = "deepprof.roofline/1"
SUFFIXES = (".svg", ".html", ".json", ".csv")
MOST_ROWS = 500  # of the page's table
PAGE_STYLE = """
:root { color-scheme: light dark; font: 13.5px/1.45 system-ui, sans-serif; }
body { margin: 0 auto; padding: 16px 20px; max-width: 940px; background: light-dark(#ffffff, #15171a); }
body { color: light-dark(#1c2126, #e4e7ea); }
svg { max-width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin-top: 12px; }
th, td { padding: 3px 12px 3px 0; text-align: right; border-bottom: 1px solid light-dark(#dddfdd, #343940); }
th { color: light-dark(#59616a, #a3acb6); font-weight: 600; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; unicode-bidi: isolate; }
""".strip()
HEAD = ("name", "share", "time", "FLOP/s", "FLOP/byte", "bound", "of roof", "basis")


def render_roofline(picture: RooflinePicture, table: pl.DataFrame, path: str) -> bytes:
    """Return the content of a file whose suffix states what it is; raises `UsageError` for another suffix.

    `table` is the one that the picture was made of: JSON and CSV have all its rows and columns.
    """
    suffix = PurePath(path).suffix.lower()
    if suffix == ".svg":
        return draw_roofline_svg(picture).encode()
    if suffix == ".html":
        return _write_page(picture).encode()
    if suffix == ".json":
        return _write_json(picture, table)
    if suffix == ".csv":
        return _write_csv(table)
    raise UsageError(f"{path}: -o writes a roofline as {', '.join(SUFFIXES)}; end the name with one of these")


def _write_json(picture: RooflinePicture, table: pl.DataFrame) -> bytes:
    """Return the roofs, and the rows with all their columns; what is unknown is null."""
    content = {
        "schema": SCHEMA,
        "title": picture.title,
        "device": picture.device,
        "roofs": picture.roofs,
        "notes": picture.notes,
        "rows": table.to_dicts(),
    }
    return msgspec.json.encode(content) + b"\n"


def _write_csv(table: pl.DataFrame) -> bytes:
    """Return the rows; a list, such as of dimensions, is JSON."""
    nested = [name for name, dtype in table.schema.items() if dtype.is_nested()]
    texts = [
        pl.Series(name, [msgspec.json.encode(value).decode() for value in table[name].to_list()]) for name in nested
    ]
    content = BytesIO()
    write_table(table.with_columns(texts), content, "csv")
    return content.getvalue()


def _write_page(picture: RooflinePicture) -> str:
    """Return one page that requests nothing else: the picture and a table of its points."""
    title = escape(printable(picture.title))
    policy = f"default-src 'none'; style-src {_hash(STYLE)} {_hash(PAGE_STYLE)}; base-uri 'none'; form-action 'none'"
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{title} · DeepProf</title>\n<style>{PAGE_STYLE}</style>\n</head>\n<body>\n<main>",
            f"<h1>{title}</h1>",
            draw_roofline_svg(picture),
            *_write_rows(picture.points),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _write_rows(points: tuple[RooflinePoint, ...]) -> Iterator[str]:
    """Yield the table of the points, the largest first."""
    yield '<div class="scroll"><table><thead><tr>'
    yield "".join(f'<th scope="col">{name}</th>' for name in HEAD)
    yield "</tr></thead><tbody>"
    for point in points[:MOST_ROWS]:
        cells = (
            printable(point.name),
            format_ratio(point.share_ratio),
            format_duration(point.time_ns),
            format_flops_rate(point.flops_per_s),
            format_intensity(point.intensity),
            point.bound or ABSENT,
            ABSENT if point.roof_ratio is None else format_ratio(point.roof_ratio),
            "measured" if point.is_measured else "predicted",
        )
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table></div>"
    if len(points) > MOST_ROWS:
        yield f"<p>{counted(len(points) - MOST_ROWS, 'smaller point')} left out; -o FILE.csv has all rows.</p>"


def _hash(text: str) -> str:
    """Return the hash by which a policy names an inline style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
