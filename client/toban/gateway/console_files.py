"""The files of the console. A path that is none is the console itself, which has addresses of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from toban.gateway.problem_details import problem

STATIC: Final = Path(__file__).parent / "static"
"""Built from `client/console`; in the wheel, and not in the repository."""

_MISSING: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Toban</title></head>
<body><h1>Toban</h1>
<p>The console is not built in this checkout. <code>scripts/build-console</code> builds it.</p>
<p>The API is complete without it: <a href="/api/openapi.json">/api/openapi.json</a>.</p>
</body></html>
"""

# Their names change with their content.
_ASSETS: Final = "assets/"
_FOREVER: Final = "public, max-age=31536000, immutable"
# What the machine has for a suffix may be another type, with which a browser runs no script.
_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_COMPRESSED: Final = (("br", ".br"), ("gzip", ".gz"))


async def console_file(request: Request) -> Response:
    """A file of the console, or its page."""
    if request.method not in ("GET", "HEAD"):
        return problem(405, "METHOD_NOT_ALLOWED", "only GET is allowed here")
    path = request.path_params.get("path", "")
    found = _inside(path)
    if found is None:
        if path.startswith(_ASSETS):
            return problem(404, "NOT_FOUND", "there is no such file")
        found = _inside("index.html")
    if found is None:
        return HTMLResponse(_MISSING, 503 if path else 200, headers={"Cache-Control": "no-store"})
    kind = _TYPES.get(found.suffix, "application/octet-stream")
    headers = {"Cache-Control": _FOREVER if path.startswith(_ASSETS) else "no-cache", "Vary": "Accept-Encoding"}
    accepted = {each.partition(";")[0].strip() for each in request.headers.get("Accept-Encoding", "").split(",")}
    for encoding, suffix in _COMPRESSED:
        smaller = found.with_name(found.name + suffix)
        if encoding in accepted and smaller.is_file():
            return FileResponse(smaller, headers={**headers, "Content-Encoding": encoding}, media_type=kind)
    return FileResponse(found, headers=headers, media_type=kind)


def _inside(path: str) -> Path | None:
    """The file at a path below the directory; None if there is none."""
    if not path or "\0" in path:
        return None
    found = Path(os.path.normpath(STATIC / path))
    return found if found.is_relative_to(STATIC) and found.is_file() else None
