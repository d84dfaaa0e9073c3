"""An API server of Kubernetes, for pods: versions, pages, watches, bookmarks, expiry, tokens, TLS."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

Pod = dict[str, Any]


class ApiServer:
    """Pods by namespace and name. Each change gets the next version; `forget()` expires all that are older."""

    def __init__(
        self, *, token: str = "", certificate: tuple[Path, Path] | None = None, bookmark_s: float = 0.2
    ) -> None:
        self.token, self.bookmark_s = token, bookmark_s
        self.pods: dict[tuple[str, str], Pod] = {}
        self.version = 100
        self.oldest = 0
        self.changes: list[tuple[int, str, Pod]] = []
        self.targets: list[str] = []
        self.failure: int | None = None  # the status of all answers
        self.garbage = b""  # sent in each watch, once
        self._news = threading.Condition()
        self._closed = False
        self.certificate = certificate
        self.port = 0
        self.start()

    # ---- life

    def start(self) -> None:
        self._closed = False
        self._http = _Server(("127.0.0.1", self.port), _Handler)
        self._http.api = self
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Closes all connections, too."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._http.shutdown()
        self._http.server_close()
        self._http.close_all()

    # ---- pods

    def put(
        self,
        name: str,
        address: str,
        *,
        namespace: str = "team",
        labels: dict[str, str] | None = None,
        phase: str = "Running",
        ends: bool = False,
    ) -> None:
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": labels or {"serves": "yes"}}
        if ends:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        pod = {"metadata": metadata, "status": {"phase": phase, "podIP": address, "podIPs": [{"ip": address}]}}
        with self._news:
            kind = "MODIFIED" if (namespace, name) in self.pods else "ADDED"
            self.pods[namespace, name] = pod
            self._change(kind, pod)

    def delete(self, name: str, namespace: str = "team") -> None:
        with self._news:
            self._change("DELETED", self.pods.pop((namespace, name)))

    def _change(self, kind: str, pod: Pod) -> None:
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append((self.version, kind, json.loads(json.dumps(pod))))
        self._news.notify_all()

    def forget(self) -> None:
        """The versions up to now are known no more; watches end."""
        with self._news:
            self.version += 1
            self.oldest = self.version
            self.changes.clear()
            self._news.notify_all()

    # ---- answers

    def page(self, namespace: str, query: dict[str, str]) -> dict[str, Any]:
        with self._news:
            chosen = [
                pod for (place, _), pod in sorted(self.pods.items()) if namespace in ("", place) and matches(pod, query)
            ]
            begin = int(query.get("continue") or 0)
            end = begin + min(int(query.get("limit") or 10**9), 2)  # small pages: several are asked for
            metadata = {"resourceVersion": str(self.version)}
            if end < len(chosen):
                metadata["continue"] = str(end)
            return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": chosen[begin:end]}

    def follow(self, namespace: str, query: dict[str, str], send: Any) -> None:
        """A watch: changes behind a version, bookmarks between them, and an end after its time."""
        last, end = int(query["resourceVersion"]), time.monotonic() + float(query["timeoutSeconds"])
        if self.garbage:
            send(self.garbage)
        while time.monotonic() < end:
            with self._news:
                if last < self.oldest:
                    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                    return send(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                if self.version == last and not self._closed:
                    self._news.wait(self.bookmark_s)
                if self._closed:
                    return None
                if last < self.oldest:
                    continue
                news = [each for each in self.changes if each[0] > last]
                version = self.version
            for _, kind, pod in news:
                if namespace in ("", pod["metadata"]["namespace"]) and matches(pod, query):
                    send(json.dumps({"type": kind, "object": pod}).encode() + b"\n")
            last = version
            if not news and query.get("allowWatchBookmarks") == "true":
                mark = {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}
                send(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")
        return None


def matches(pod: Pod, query: dict[str, str]) -> bool:
    labels = pod["metadata"]["labels"]
    wanted = [each.partition("=") for each in query.get("labelSelector", "").split(",") if each]
    return all(labels.get(name) == value for name, _, value in wanted)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    api: ApiServer

    def __init__(self, *arguments: Any) -> None:
        self.open: set[Any] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def close_all(self) -> None:
        for each in self.open:
            with contextlib.suppress(OSError):
                each.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what tests want."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        pass

    def _refuse(self, code: int, message: str) -> None:
        body = json.dumps({"kind": "Status", "code": code, "message": message}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        api = self.server.api
        api.targets.append(self.path)
        url = urlparse(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        if api.failure:
            return self._refuse(api.failure, "as the test wants it")
        if api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
            return self._refuse(401, "Unauthorized")
        if parts == ["api", "v1", "pods"]:
            namespace = ""
        elif len(parts) == 5 and parts[:3] == ["api", "v1", "namespaces"] and parts[4] == "pods":
            namespace = parts[3]
        else:
            return self._refuse(404, "the server could not find the requested resource")
        if "watch" not in query:
            body = json.dumps(api.page(namespace, query)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def send(data: bytes) -> None:
            for piece in (data[: len(data) // 2], data[len(data) // 2 :]):  # lines are cut anywhere
                if piece:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()

        api.follow(namespace, query, send)
        self.wfile.write(b"0\r\n\r\n")
        return None
