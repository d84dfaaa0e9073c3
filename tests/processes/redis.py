"""A real Redis server for the tests: on a Unix socket in a folder of its own, without persistence."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from certificates import Identity
from node import free_port


class Redis:
    """A server that is ended with close(); `stop()` and `resume()` are SIGSTOP and SIGCONT, `kill()` is SIGKILL."""

    def __init__(self, *settings: str) -> None:
        self._program = shutil.which("redis-check-rdb")  # called redis-server, it is one
        assert self._program, "scripts/setup installs redis-tools"
        self._folder = tempfile.TemporaryDirectory(prefix="cenote-redis-")
        self.socket = Path(self._folder.name) / "redis.sock"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> Self:
        self.socket.unlink(missing_ok=True)
        command = ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            [*command, "--dir", self._folder.name, *self._settings],
            executable=self._program,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                if self.ask("PING") == b"+PONG\r\n":
                    return self
            except OSError:
                assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.01)

    def ask(self, *words: str | bytes) -> bytes:
        """The first 64 KiB of the reply, as it came."""
        parts = [each.encode() if isinstance(each, str) else each for each in words]
        request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(each), each) for each in parts)
        with socket.socket(socket.AF_UNIX) as to:
            to.settimeout(60)
            to.connect(str(self.socket))
            to.sendall(request)
            return to.recv(1 << 16)

    def size(self) -> int:
        return int(self.ask("DBSIZE")[1:-2])

    def values(self) -> list[bytes]:
        """The keys of all blocks in it."""
        words = self.ask("KEYS", "cenote:*").split(b"\r\n")
        return [each for each in words if each.startswith(b"cenote:") and each.count(b":") == 3]

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(60)

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self.resume()
            self.kill()
        self._folder.cleanup()

    def _signal(self, which: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, which)


class SecuredRedis(Redis):
    """A server that speaks TLS at a port of the loopback, with a certificate that is its own authority."""

    def __init__(self, identity: Identity, *settings: str, clients: str = "no") -> None:
        self.identity = identity
        self.port = free_port()
        files = ("--tls-cert-file", str(identity.certificate), "--tls-key-file", str(identity.key))
        authority = ("--tls-ca-cert-file", str(identity.certificate), "--tls-auth-clients", clients)
        super().__init__("--tls-port", str(self.port), *files, *authority, *settings)

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}?ca={self.identity.certificate}"
