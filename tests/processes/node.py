"""A real node for a test, in a directory of its own, and client processes that a test steers through pipes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import wire

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARY = Path(os.environ.get("CENOTE_BINARY", ROOT / "build" / "cenote"))
SANITIZED = bool(os.environ.get("CENOTE_SANITIZER"))
FULL = bool(os.environ.get("CENOTE_TEST_FULL"))
PATIENCE = 6.0 if SANITIZED else 1.0  # times that a node of this build is slower
# Seconds after which a test gives up what it waits for. They are no claim: a busy machine takes what it needs, and only
# what never comes reaches them. A deadline that a call must not use up is UNREACHED, which lies beyond them.
LIMIT = 120.0 if SANITIZED else 60.0
UNREACHED = 3600.0
KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30

T = TypeVar("T")


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that are free now, outside of those that the kernel gives away. Processes of pytest
    that run side by side (pytest-xdist) take theirs from ranges of their own."""
    first, least_given = 10_000, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    shard = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    each = (max(least_given, 2 * first) - first) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    found: list[int] = []
    for port in random.sample(range(first + shard * each, first + (shard + 1) * each), 1_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            break
    return found


def free_port() -> int:
    return free_ports(1)[0]


def open_files(pid: int) -> list[str]:
    """Paths, or the names of the kernel, of all that a process has open. Descriptors may vanish while they are read."""
    names = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(os.readlink(each))
    return names


def until(what: str, condition: Callable[[], T], limit: float = LIMIT, pause: float = 0.01) -> T:
    """Polls until `condition` gives something true, and returns that; fails the test after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"after {limit:g} s still not: {what} (last: {found!r})")
        time.sleep(pause)


def is_alive(pid: int) -> bool:
    """A zombie counts as dead."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def stop_process(pid: int) -> None:
    """SIGSTOP, and back when every thread has stopped."""
    os.kill(pid, signal.SIGSTOP)

    def stopped() -> bool:
        states = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        return all(state.rpartition(")")[2].split()[0] in "TtZX" for state in states)

    until(f"process {pid} is stopped", stopped, pause=0.002)


def processes_naming(text: str) -> dict[int, str]:
    """Command lines of living processes that mention `text`, but for this one."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text in line and is_alive(int(entry.name)):
                found[int(entry.name)] = line
    return found


def node_environment() -> dict[str, str]:
    """This environment without what would configure a node; the binary is no child of an instrumented Python."""
    kept = {name: value for name, value in os.environ.items() if "__" not in name or not name.startswith("CENOTE_")}
    for name in ("CENOTE_SOCKET", "LD_PRELOAD", "PYTHONMALLOC", "NOTIFY_SOCKET"):
        kept.pop(name, None)
    return kept | {"CENOTE_CONFIG": ""}  # the machine's own file is none of a test's


def preloading(library: Path) -> dict[str, str]:
    """What makes a node load `library` before its own; a sanitizer's runtime, if any, has to stay in front of it."""
    return {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()}


def run_cenote(*arguments: str | Path, limit: float = LIMIT, **more: Any) -> subprocess.CompletedProcess[str]:
    """One run of the binary that ends by itself."""
    return subprocess.run(
        [str(BINARY), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit,
        env=more.pop("env", node_environment()),
        check=False,
        **more,
    )


class Node:
    """`cenote node` in `folder`. Every worker death that the test causes is announced: finish() counts them."""

    def __init__(
        self, folder: Path, *sets: str, config: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.socket = folder / "cenote.sock"
        self.log = folder.parent / f"{folder.name}.log"
        self.command = [str(BINARY), "node"]
        if config is not None:
            self.command += ["--config", str(config)]
        for each in (f"node.runtime_dir={folder}", "log.format=json", *sets):
            self.command += ["--set", each]
        self.environment = node_environment() | dict(environment or {})
        self.device: str | None = None  # whose tier the figures below are of; None: DRAM's
        self.block_bytes: dict[str, int] = {}  # of instances
        self.process: subprocess.Popen[bytes] | None = None
        self.announced_deaths = 0
        self.meant_crashes = False
        self.allowed_errors: list[str] = []  # regular expressions on "message" of error lines
        self.late_refusal = ""  # of a worker, for what no look at its machine can find: a name that is taken
        self._log_mark = 0

    # ---- life

    def launch(self) -> Node:
        """Starts without waiting."""
        assert self.process is None or self.process.poll() is not None
        with self.log.open("ab") as log:
            self._log_mark = log.tell()
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )
        return self

    def start(self) -> Node:
        """Starts and waits until `cenote status` answers."""
        self.launch()
        until("the node answers `cenote status`", self._answers, pause=0.03)
        return self

    def until_populated(self) -> Node:
        """Waits until all memory is touched: no descriptor comes or goes for its sake then."""
        until("memory is populated", lambda: self.status()["dram"]["populate"]["state"] == "done")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the node ended with {self.process.returncode}:\n{self.log_text()}")
        return self.socket.exists() and run_cenote("status", "--json", "--socket", self.socket).returncode == 0

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, limit: float = LIMIT) -> int:
        """The exit code; the node was told to end before."""
        assert self.process is not None
        return self.process.wait(limit)

    def stop(self) -> int:
        """SIGTERM and wait."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # ---- what it says

    def status(self, limit: float = LIMIT) -> dict[str, Any]:
        """What `cenote status --json` prints, asked directly. A worker on its way is waited for, `limit` seconds."""
        end = time.monotonic() + limit
        while True:
            try:
                answer = wire.ask_node(self.socket, "status", timeout=max(0.1, end - time.monotonic()))
                assert isinstance(answer, dict)
                return answer
            except (ConnectionError, BrokenPipeError):  # the worker died with the question in its hands
                if time.monotonic() > end:
                    raise
                time.sleep(0.005)

    @property
    def worker_pid(self) -> int:
        return int(self.status()["node"]["worker_pid"])

    @property
    def epoch(self) -> int:
        return int(self.status()["node"]["epoch"])

    def counter(self, name: str) -> int:
        return int(self.status()["counters"][name])

    def tier_status(self) -> dict[str, Any]:
        """status() when the tier is there: a device's is opened behind a worker's start."""
        if self.device is None:
            return self.status()

        def ready() -> dict[str, Any]:
            status = self.status()
            return status if self._tier_of(status)["state"] == "ready" else {}

        return until("the device's tier is ready", ready)

    def _tier_of(self, status: dict[str, Any]) -> dict[str, Any]:
        if self.device is None:
            return dict(status["dram"])
        (found,) = [each for each in status["gpu"]["devices"] if each["device"] == self.device]
        return dict(found)

    def tier(self) -> dict[str, Any]:
        """Figures that all tiers with blocks in memory have."""
        return self._tier_of(self.tier_status())

    def instances(self) -> list[dict[str, Any]]:
        """Those of the tier, by the names that clients use."""
        found = self.tier_status()["instances"]
        if self.device is None:
            return list(found)
        where = f"@{self.device}"  # and behind it a rank's number, if there are several
        return [{**each, "id": each["id"].replace(where, "")} for each in found if where in each["id"]]

    def sessions(self) -> list[dict[str, Any]]:
        """Those of clients: a device's tier has one more of DRAM, without a process."""
        return [each for each in self.tier_status()["sessions"] if "pid" in each]

    def blocks(self) -> dict[str, int]:
        """{"present": …, "granted": …, …} of the whole tier."""
        if self.device is None:
            return dict(self.status()["dram"]["blocks"])
        found = {name: sum(each[name] for each in self.instances()) for name in ("pending", "quarantined", "zombie")}
        present = sum(each["blocks"] for each in self.instances())
        return {**found, "present": present, "granted": sum(each["grants"] for each in self.sessions())}

    def instance(self, name: str) -> dict[str, Any]:
        found = [each for each in self.instances() if each["id"] == name]
        assert len(found) == 1, f"instance {name} is {len(found)} times in the status"
        return dict(found[0])

    def group_used(self, name: str) -> int:
        """Bytes of what the group's blocks take of the tier."""
        if self.device is None:
            return next((int(each["used"]) for each in self.status()["groups"] if each["name"] == name), 0)
        return sum(self._used_by(each) for each in self.instances() if each["account"] == name)

    def _used_by(self, instance: dict[str, Any]) -> int:
        size, slabs = self.block_bytes[instance["id"]], int(instance["slabs"])
        return size * (slabs * (int(instance["bytes"]) // max(1, slabs) // size) - int(instance["free"]))

    def session_of(self, pid: int) -> dict[str, Any] | None:
        return next((each for each in self.status()["sessions"] if each.get("pid") == pid), None)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_lines(self, since_start: bool = False) -> Iterator[dict[str, Any]]:
        """The log's JSON lines; what is no JSON (a sanitizer's report) comes as {"raw": line}."""
        text = self.log.read_bytes()[self._log_mark if since_start else 0 :].decode(errors="replace")
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            yield entry if isinstance(entry, dict) else {"raw": line}

    def logged(self, message: str, since_start: bool = False) -> list[dict[str, Any]]:
        """Lines whose message contains `message`."""
        return [entry for entry in self.log_lines(since_start) if message in entry.get("message", "")]

    # ---- harm

    def worker_dies(self, number: int = signal.SIGKILL) -> int:
        """Sends the worker a deadly signal and waits for its end (not for the next one); returns its pid."""
        worker = self.worker_pid
        self.announced_deaths += 1
        self.meant_crashes |= number == signal.SIGSEGV
        os.kill(worker, number)
        until("the worker is dead", lambda: not is_alive(worker), pause=0.001)
        return worker

    def restart_worker(self, number: int = signal.SIGKILL) -> float:
        """Kills the worker; seconds until the next one answers."""
        self.worker_dies(number)
        begin = time.monotonic()
        self.status()
        return time.monotonic() - begin

    @contextlib.contextmanager
    def worker_stopped(self) -> Iterator[int]:
        """The worker is SIGSTOPped meanwhile."""
        worker = self.worker_pid
        stop_process(worker)
        try:
            yield worker
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)

    # ---- the end

    def finish(self) -> None:
        """Stops what still runs, then looks for what should not be there: processes, sockets, errors in the log."""
        if self.running:
            try:
                code = self.stop()
            except subprocess.TimeoutExpired:
                self.kill_everything()
                raise AssertionError(f"the node did not end on SIGTERM:\n{self.log_text()[-4000:]}") from None
            assert code == 0, f"the node ended with {code}:\n{self.log_text()[-4000:]}"
            assert not self.socket.exists(), "an orderly end left the socket behind"
        left = {}

        def nobody_left() -> bool:
            nonlocal left
            left = processes_naming(f"{self.folder} ") | processes_naming(f"runtime_dir={self.folder}")
            return not left

        try:
            until("no process of the node is left", nobody_left)
        except AssertionError:
            self.kill_everything()
            raise AssertionError(f"processes were left behind: {left}") from None
        self._check_log()

    def _check_log(self) -> None:
        reports = [e["raw"] for e in self.log_lines() if re.search(r"Sanitizer|runtime error:", e.get("raw", ""))]
        if self.meant_crashes:  # the sanitizer's words for a signal that a test sent
            reports = [each for each in reports if not re.search(r"SEGV|DEADLYSIGNAL|can not provide", each)]
        assert not reports, "sanitizer reports:\n" + self.log_text()[-8000:]
        refused = [line for line in self.log_text().splitlines() if "cannot work with this configuration" in line]
        unlisted = [line for line in refused if not (self.late_refusal and self.late_refusal in line)]
        assert not unlisted, f"a worker refused what worker/prerequisites.cpp let pass: {unlisted}"
        died = self.logged("worker died")
        assert len(died) == self.announced_deaths, f"{self.announced_deaths} deaths of workers were meant: {died}"
        expected = ["worker died", *self.allowed_errors]
        errors = [
            entry
            for entry in self.log_lines()
            if entry.get("level") == "error" and not any(re.search(each, entry["message"]) for each in expected)
        ]
        assert not errors, f"errors in the log: {errors}"

    def kill_everything(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in processes_naming(f"runtime_dir={self.folder}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def finish_all(nodes: Sequence[Node]) -> None:
    """Node.finish() of each, the latest first, whatever becomes of the others; what was wrong with any comes at the
    end."""
    problems = []
    for each in reversed(nodes):
        try:
            each.finish()
        except AssertionError as why:
            problems.append(str(why))
        finally:
            each.kill_everything()
    assert not problems, "\n".join(problems)


class AgentError(Exception):
    """What a client's call raised."""

    def __init__(self, kind: str, code: str, message: str, stored: int | None) -> None:
        super().__init__(f"{kind} {code}: {message}")
        self.kind = kind
        self.code = code
        self.message = message
        self.stored = stored


class Agent:
    """A client process, clients/agent.py: takes one command a line, answers with one line each, in order."""

    def __init__(
        self,
        socket: Path,
        *,
        script: str = "agent.py",
        device: str | None = None,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        surroundings = {**os.environ, "CENOTE_SOCKET": str(socket), **(environment or {})}
        surroundings["PYTHONPATH"] = os.pathsep.join(
            [str(HERE), os.environ.get("PYTHONPATH", str(ROOT / "python")), str(ROOT / "python")]
        )
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(HERE / "clients" / script), *([device] if device else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=surroundings,
            bufsize=0,
        )
        assert self.process.stdout is not None
        self._readable = select.poll()
        self._readable.register(self.process.stdout, select.POLLIN | select.POLLHUP)
        self._buffer = b""
        self._sent = 0
        self._received = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, command: str, **arguments: Any) -> int:
        """Hands a command over; answer() brings its result."""
        assert self.process.stdin is not None
        self._sent += 1
        line = json.dumps({"command": command, "arguments": arguments}) + "\n"
        self.process.stdin.write(line.encode())
        return self._sent

    def has_answer(self, wait: float = 0.0) -> bool:
        return b"\n" in self._buffer or bool(self._readable.poll(wait * 1000))

    def answer(self, limit: float = LIMIT) -> Any:
        """The result of the oldest command without one; what it raised is raised as AgentError."""
        assert self.process.stdout is not None
        end = time.monotonic() + limit
        while b"\n" not in self._buffer:
            left = end - time.monotonic()
            assert left > 0 and self._readable.poll(left * 1000), "the client does not answer"
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise AssertionError(f"the client ended with {self.process.wait(LIMIT)}")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        self._received += 1
        reply = json.loads(line)
        if "error" in reply:
            raise AgentError(reply["error"], reply["code"], reply["message"], reply["stored"])
        return reply["value"]

    def call(self, command: str, limit: float = LIMIT, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.answer(limit)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def pause(self) -> None:
        """SIGSTOP, and back when it has stopped."""
        stop_process(self.pid)

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and back when it is dead."""
        self.process.kill()
        self.process.wait(LIMIT)

    def finish(self) -> None:
        """Ends the process whatever it does."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.send_signal(signal.SIGCONT)
            assert self.process.stdin is not None
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            try:
                self.process.wait(8 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
