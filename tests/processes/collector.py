"""A collector of OpenTelemetry's spans: OTLP in JSON over HTTP, read by OpenTelemetry's own definitions."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from certificates import Identity
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span(NamedTuple):
    """As the collector got it. Ids are hexadecimal."""

    trace: str
    id: str
    parent: str
    name: str
    begin: int
    end: int
    attributes: dict[str, int | str]
    failure: str
    resource: dict[str, int | str]


def _values(attributes: Any) -> dict[str, int | str]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def _hex(number: bytes) -> str:
    """OTLP's JSON has ids as hexadecimal texts, which protobuf's JSON takes for base64."""
    return base64.b64encode(number).decode()


def spans_of(body: bytes) -> list[Span]:
    """ParseError: a member that OTLP does not have, or a value of another type."""
    request = json_format.Parse(body, ExportTraceServiceRequest())
    found = []
    for of_node in request.resource_spans:
        for of_scope in of_node.scope_spans:
            assert of_scope.scope.name == "cenote"
            for each in of_scope.spans:
                assert each.kind == each.SPAN_KIND_INTERNAL
                found.append(
                    Span(
                        _hex(each.trace_id),
                        _hex(each.span_id),
                        _hex(each.parent_span_id),
                        each.name,
                        each.start_time_unix_nano,
                        each.end_time_unix_nano,
                        _values(each.attributes),
                        each.status.message,
                        _values(of_node.resource.attributes),
                    )
                )
    return found


class Collector:
    """Ends with `close`. `answer`: the status of a request, by its number from 0. `identity`: it has TLS."""

    def __init__(
        self,
        answer: Callable[[int], int] = lambda number: 200,
        body: bytes = b"{}",
        identity: Identity | None = None,
    ) -> None:
        self.spans: list[Span] = []
        self.paths: list[str] = []
        self.batches: list[int] = []
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/json"
                with owner._lock:
                    status = answer(len(owner.batches))
                    spans = spans_of(text)
                    owner.batches.append(len(spans))
                    owner.paths.append(self.path)
                    if status == 200:
                        owner.spans += spans
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(identity.certificate, identity.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if identity is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def named(self, name: str) -> list[Span]:
        with self._lock:
            return [each for each in self.spans if each.name == name]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Stopped:
    """As a process that was stopped: the system takes connections for it, without an answer."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1/traces"

    def close(self) -> None:
        self._socket.close()
