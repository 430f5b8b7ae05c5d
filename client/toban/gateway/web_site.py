"""Where the gateway is reached: the names that a browser may call it by."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSite:
    """`origins` are all of them, such as `http://127.0.0.1:7280`; `url` is the one to print."""

    url: str
    origins: frozenset[str]
    port: int

    @property
    def secure(self) -> bool:
        return self.url.startswith("https://")

    @property
    def hosts(self) -> frozenset[str]:
        """What the header Host may be."""
        found = {urlsplit(origin).netloc for origin in self.origins}
        return frozenset(found | {_without_default_port(origin) for origin in self.origins})


def web_site(host: str, port: int, *, tls: bool, public_url: str = "") -> WebSite:
    """The site of a gateway that listens on `host`; `public_url` is where people reach it, if that differs."""
    scheme = "https" if tls else "http"
    names = LOOPBACK if host in LOOPBACK else {host}
    origins = {f"{scheme}://{_bracketed(name)}:{port}" for name in names}
    url = f"{scheme}://{_bracketed(host)}:{port}"
    if public_url:
        url = public_url.rstrip("/")
        origins.add(url)
    return WebSite(url=url, origins=frozenset(origins), port=port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _without_default_port(origin: str) -> str:
    parts = urlsplit(origin)
    default = 443 if parts.scheme == "https" else 80
    return parts.netloc.removesuffix(f":{default}")
