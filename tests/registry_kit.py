"""A registry of one image, real enough for an engine to fetch from, whose tag can be moved."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass
class Registry:
    """What the server holds: blobs by digest, and the manifest that the tag names now."""

    port: int = 0
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifest: str = ""

    @property
    def image(self) -> str:
        """The reference to fetch the image by."""
        return f"127.0.0.1:{self.port}/os:1"

    def push(self, layer: bytes, environment: str) -> str:
        """Move the tag to an image of one layer; returns its digest."""
        config = {
            "architecture": "amd64",
            "os": "linux",
            "created": "2020-01-01T00:00:00Z",
            "config": {"Env": [environment], "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "history": [{"created": "2020-01-01T00:00:00Z", "created_by": environment}],
        }
        config_bytes = json.dumps(config).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._put(config_bytes, "application/vnd.docker.container.image.v1+json"),
            "layers": [self._put(layer, "application/vnd.docker.image.rootfs.diff.tar")],
        }
        self.manifest = self._put(json.dumps(manifest).encode(), _MANIFEST)["digest"]
        return self.manifest

    def _put(self, data: bytes, kind: str) -> dict[str, Any]:
        self.blobs[_digest(data)] = data
        return {"mediaType": kind, "size": len(data), "digest": _digest(data)}

    def answer(self, path: str) -> tuple[bytes | None, Mapping[str, str]]:
        """The content at a path, and what to say of it; None where there is nothing."""
        if path == "/v2/":
            return b"{}", {}
        name = path.rpartition("/")[2]
        digest = self.manifest if "/manifests/" in path and name == "1" else name
        kind = _MANIFEST if "/manifests/" in path else "application/octet-stream"
        headers = {"Content-Type": kind, "Docker-Content-Digest": digest}
        return self.blobs.get(digest), headers


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def registry() -> Iterator[Registry]:
    """A registry on this machine, for as long as it is used."""
    held = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            body, headers = held.answer(self.path)
            self.send_response(404 if body is None else 200)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if with_body and body:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    held.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield held
    finally:
        server.shutdown()
        server.server_close()
