"""Other flame graphs in a browser, with the same frames: installed by npm into their own folder."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

from benchmarks.nested_boxes import NAMES, NestedBoxes
from benchmarks.page_timing import BoxPicture

D3 = ("d3@7.9.0", "d3-flame-graph@5.0.0")
SPEEDSCOPE = "speedscope@1.25.0"
INSTALL_S = 180
NARROWEST_PX = 3  # what is narrower is not drawn; DeepProf merges it with its neighbours
WIDTH_PX = 780  # of the picture, as DeepProf's in the same window

D3_FRAME = BoxPicture("g.frame", "frame => frame.__data__.depth + 1")
SPEEDSCOPE_PICTURE = "div:has(> canvas) ~ div canvas"  # next to the one that all others are drawn with

_D3_PAGE = """<!doctype html>
<meta charset="utf-8">
<link rel="stylesheet" href="d3-flamegraph.css">
<div id="chart"></div>
<script src="d3.min.js"></script>
<script src="d3-flamegraph.umd.min.js"></script>
<script type="application/json" id="frames">FRAMES</script>
<script>
  const frames = JSON.parse(document.getElementById("frames").textContent);
  const chart = (flamegraph.default ?? flamegraph)().width(WIDTH).inverted(true);
  chart.transitionDuration(0).minFrameSize(NARROWEST);
  d3.select("#chart").datum(frames).call(chart);
</script>
"""


class PeerMissingError(Exception):
    """A peer could not be installed; the message is one line that states why."""


def install(folder: Path, *packages: str) -> Path:
    """Return a folder with packages of npm, whose own scripts are not run; raises `PeerMissingError`."""
    installed = folder / "node_modules"
    if installed.is_dir():
        return installed
    npm = shutil.which("npm")
    if npm is None:
        raise PeerMissingError("no npm")
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix", folder, *packages]
    folder.mkdir(exist_ok=True)
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)
    except (subprocess.SubprocessError, OSError):
        raise PeerMissingError("npm could not install it") from None
    return installed


def write_d3_page(folder: Path, packages: Path, boxes: NestedBoxes, *, narrowest_px: int) -> Path:
    """Return a page of d3-flame-graph with boxes as frames; nothing narrower is drawn, and nothing moves."""
    for file in ("d3/dist/d3.min.js", *(f"d3-flame-graph/dist/d3-flamegraph.{end}" for end in ("umd.min.js", "css"))):
        shutil.copy(packages / file, folder)
    text = _D3_PAGE.replace("WIDTH", str(WIDTH_PX)).replace("NARROWEST", str(narrowest_px))
    path = folder / f"d3-{boxes.count}-{narrowest_px}.html"
    path.write_text(text.replace("FRAMES", json.dumps(nest_frames(boxes), separators=(",", ":"))))
    return path


def nest_frames(boxes: NestedBoxes) -> dict[str, object]:
    """Return boxes as objects within each other."""
    columns = zip(boxes.name.tolist(), boxes.duration_ns.tolist(), strict=True)
    frames = [{"name": NAMES[name], "value": value, "children": []} for name, value in columns]
    for row, parent in enumerate(boxes.parent.tolist()):
        if parent >= 0:
            frames[parent]["children"].append(frames[row])  # type: ignore[attr-defined]
    return frames[0]  # type: ignore[return-value]


def write_speedscope_page(folder: Path, packages: Path, boxes: NestedBoxes) -> tuple[str, int]:
    """Return the address of speedscope's own page with boxes as a profile, and the bytes of both."""
    release = packages / "speedscope/dist/release"
    profile = json.dumps(_sample(boxes), separators=(",", ":")).encode()
    path = folder / "profile.js"
    path.write_text(f'speedscope.loadFileFromBase64("boxes.json", "{base64.b64encode(profile).decode()}")')
    code = sum(file.stat().st_size for file in release.iterdir() if file.suffix in {".js", ".css", ".html"})
    return f"{(release / 'index.html').as_uri()}#localProfilePath={path}", code + path.stat().st_size


def _sample(boxes: NestedBoxes) -> dict[str, object]:
    """Return boxes as a profile of stacks, each with the time that none of the boxes in it needed."""
    own, stacks = boxes.duration_ns.copy(), [[name] for name in boxes.name.tolist()]
    for row, parent in enumerate(boxes.parent.tolist()):
        if parent >= 0:
            own[parent] -= boxes.duration_ns[row]
            stacks[row] = stacks[parent] + stacks[row]
    order = sorted(range(boxes.count), key=boxes.start_ns.tolist().__getitem__)
    profile = {
        "type": "sampled",
        "name": "boxes",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": int(own.sum()),
        "samples": [stacks[row] for row in order],
        "weights": own[order].tolist(),
    }
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": name} for name in NAMES]},
        "profiles": [profile],
    }
