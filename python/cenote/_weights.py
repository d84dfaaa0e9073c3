"""Which weights a model has, told by the content of its files: equal on every machine that has the same files.

A file is read once a version where the kernel vouches for versions: file system, device, inode, size, and the times of
the last change of its content (mtime, which programs can set) and of anything (ctime, which they cannot). Elsewhere,
see `_mounts`, it is read at each start. Digests are remembered in $XDG_CACHE_HOME/cenote/weights.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import logging
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ._mounts import Mounts

logger = logging.getLogger("cenote")

_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz", ".npy", ".ckpt", ".msgpack", ".h5", ".tensors"}
_SAID = {".json", ".py", ".yaml", ".yml"}  # files that say what is computed with the weights
# Files of these names change no KV: keys hold token ids, sampling comes afterwards, and training came before.
_LEFT_OUT = {
    "added_tokens.json",
    "chat_template.json",
    "generation_config.json",
    "merges.json",
    "optimizer.bin",
    "optimizer.pt",
    "scaler.pt",
    "scheduler.pt",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "trainer_state.json",
    "training_args.bin",
    "vocab.json",
}
# Folders that engines do not load from: another format of the same weights, and what training left.
_SKIPPED = re.compile(r"\..*|original|__pycache__|(checkpoint|epoch|step|global_step)[-_]?\d+")

_CHUNK = 64 << 20  # bytes; chunks of a file are hashed in parallel
_READ = 4 << 20
_THREADS = 4
_KEPT = 4096  # remembered files
_SETTLED = 2.0  # seconds: a younger change may be followed by another one that has the same time
_LONGEST_WAIT = 300.0  # seconds, for another process that reads the same file
_PROGRESS = 10.0  # seconds between two lines in the log


class Unreadable(Exception):
    """A file could not be read, or changed meanwhile."""


class File(NamedTuple):
    """`name`: relative to the model's folder."""

    name: str
    path: Path


class Version(NamedTuple):
    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    file_system: int = 0  # its identity, as statvfs gives it

    @classmethod
    def of(cls, opened: int) -> Version:
        """Of an open file."""
        status, file_system = os.fstat(opened), os.fstatvfs(opened).f_fsid
        times = status.st_mtime_ns, status.st_ctime_ns
        return cls(status.st_dev, status.st_ino, status.st_size, *times, file_system)


def files_of(model: Path) -> list[File]:
    """Everything in a model's folder (or the one file that it is) that decides about KV, by name."""
    if model.is_file():
        return [File("", model)]
    found = []
    seen = set()  # links may lead in a circle
    for folder, below, names in os.walk(model, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            below.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        below[:] = sorted(each for each in below if not _SKIPPED.fullmatch(each))
        for name in names:
            path = Path(folder, name)
            if path.suffix in _WEIGHTS | _SAID and name not in _LEFT_OUT:
                found.append(File(path.relative_to(model).as_posix(), path))
    return sorted(found)


def folder_of(model: str, revision: str | None, cache: str | None) -> Path:
    """Where the files of `model` are: its path, or the hub's cache. Unreadable: neither has them."""
    place = Path(model)
    if place.exists():
        return place
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(model, revision=revision, cache_dir=cache, local_files_only=True))
    except Exception as why:
        raise Unreadable(f"{model} is neither a folder nor in the hub's cache") from why


def from_elsewhere(config: Mapping[str, Any], *, trusts_code: bool) -> str | None:
    """Weights or code that a model's configuration takes from other places than its own folder."""
    for key, value in config.items():
        names_a_model = key.endswith("_model_id") or key == "mm_vision_tower"
        if names_a_model and value and not str(value).startswith("./"):  # that is within the folder
            return f"the weights of {value}"
    for value in (config.get("auto_map") or {}).values() if trusts_code else ():
        for each in value if isinstance(value, list | tuple) else [value]:
            if "--" in str(each):
                return f"code of {str(each).partition('--')[0]}"
    return None


def holds_weights(files: Sequence[File]) -> bool:
    return any(each.path.suffix in _WEIGHTS or not each.name for each in files)


def changed_after(model: Path, files: Sequence[File], moment: float) -> bool:
    """Whether files of `model` may have been changed or exchanged at or after `moment` (of the wall clock). Blobs of a
    hub's cache are not: they are written once, under a name that is made of their content."""
    plain = [each.path for each in files if not _is_blob(each.path)]
    place = Path(os.path.abspath(model))
    links = [each for each in (place, *place.parents) if each.is_symlink()]
    changes = [each.stat().st_ctime for each in {*plain, *(each.parent for each in plain)}]  # a renamed folder, too
    return any(each >= moment for each in (*changes, *(each.lstat().st_ctime for each in links)))


def _is_blob(path: Path) -> bool:
    target = path.resolve()
    return target.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", target.name) is not None


def process_began(process: int | None = None) -> float:
    """When a process (None: this one) was started, by the wall clock."""
    after_name = Path(f"/proc/{process or 'self'}/stat").read_text().rpartition(")")[2].split()
    ticks = int(after_name[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _cache() -> Path:
    """The user's cache."""
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(named) if named else Path.home() / ".cache"
    except RuntimeError:  # a user without a home, as in containers: nothing is remembered
        return Path(os.devnull)


class Memory:
    """Digests of file versions, in one small file each. What is damaged, or not the user's own, is not there."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _cache() / "cenote" / "weights"

    def _place(self, version: Version) -> Path:
        return self._folder / hashlib.sha256(repr(tuple(version)).encode()).hexdigest()

    @staticmethod
    def _entry(version: Version, digest: str) -> bytes:
        check = hashlib.sha256(f"{tuple(version)} {digest}".encode()).hexdigest()
        return json.dumps({"version": list(version), "digest": digest, "check": check}).encode()

    def recall(self, version: Version) -> str | None:
        try:
            with self._place(version).open("rb") as opened:
                if os.fstat(opened.fileno()).st_uid != os.geteuid():
                    return None
                raw = opened.read(4096)
            digest = json.loads(raw)["digest"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return digest if isinstance(digest, str) and raw == self._entry(version, digest) else None

    def remember(self, version: Version, digest: str) -> str | None:
        """None: done; else why not. A cache that cannot be written costs time later, nothing else."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room()
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=".new-")  # 0600
            try:
                with os.fdopen(handle, "wb") as opened:
                    opened.write(self._entry(version, digest))
                os.replace(name, self._place(version))
            except BaseException:
                os.unlink(name)
                raise
        except OSError as why:
            return str(why)
        return None

    def _make_room(self) -> None:
        with os.scandir(self._folder) as found:
            kept = [(each.stat(follow_symlinks=False).st_mtime, each.path) for each in found if each.is_file()]
        for _, path in sorted(kept)[: max(0, len(kept) + 1 - _KEPT)]:
            with contextlib.suppress(OSError):
                os.unlink(path)

    @contextlib.contextmanager
    def alone(self, version: Version) -> Iterator[Reading]:
        """One process at a time reads a file: the others then find what it remembered, or left for them."""
        with contextlib.ExitStack() as held:
            reading = Reading(None)
            try:
                path = self._lock_folder() / f"{self._place(version).name}.lock"
                lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError:
                pass
            else:
                held.callback(os.close, lock)
                reading = Reading(lock)
                if _locked(lock):
                    held.callback(_forget, str(path))
            yield reading

    def _lock_folder(self) -> Path:
        """Where locks lie: beside the digests, or, where these cannot be written, in a folder of the user's alone among
        the temporary files. OSError: neither."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(self._folder, os.W_OK):
                return self._folder
        except OSError:
            pass
        folder = Path(tempfile.gettempdir()) / f"cenote-weights-{os.geteuid()}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise PermissionError(f"{folder} is not a folder of this user alone")
        return folder


class Reading:
    """One file's turn to be read. Its lock file carries the digest from a process that has read the file to those that
    waited meanwhile with the same file open: what is open is neither replaced nor unmounted."""

    def __init__(self, lock: int | None) -> None:
        self._lock = lock
        self._began = time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def shared(self) -> str | None:
        """The digest that another process of this machine found while this one waited."""
        if self._lock is None or os.fstat(self._lock).st_uid != os.geteuid():
            return None
        try:
            boot, ended, digest = os.pread(self._lock, 4096, 0).decode().split()
            is_new = boot == _boot() and int(ended) >= self._began
        except ValueError:
            return None
        return digest if is_new and re.fullmatch(r"[0-9a-f]{64}", digest) else None

    def share(self, digest: str) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock, 0)
                os.pwrite(self._lock, f"{_boot()} {time.clock_gettime_ns(time.CLOCK_BOOTTIME)} {digest}".encode(), 0)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _locked(lock: int) -> bool:
    """Waits for it, but not for ever: its holder may be stopped."""
    end = time.monotonic() + _LONGEST_WAIT
    while time.monotonic() < end:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.1)
        except OSError:  # a file system without locks
            return False
        else:
            return True
    return False


def _forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def digest_of(files: Sequence[File], memory: Memory | None = None, clock: Callable[[], float] = time.time) -> str:
    """Of names and contents. Unreadable: see there; OSError: a file is not there."""
    memory = memory or Memory()
    mounts = Mounts()
    known = {each.name: _recalled(each.path, memory, mounts) for each in files}
    unknown = [each for each in files if known[each.name] is None]
    progress = _Progress(sum(each.path.stat().st_size for each in unknown), len(unknown))
    for each in unknown:
        known[each.name] = _digest_file(each.path, memory, mounts, progress, clock)
    progress.end()
    told = hashlib.sha256()
    for each in sorted(files):
        told.update(json.dumps([each.name, known[each.name]]).encode())
    return told.hexdigest()


def digest_file(path: Path) -> str:
    return digest_of([File("", path)])


def _recalled(path: Path, memory: Memory, mounts: Mounts) -> str | None:
    with path.open("rb") as opened:
        version = Version.of(opened.fileno())
        return memory.recall(version) if mounts.doubt_of(opened.fileno(), version.ctime_ns) is None else None


def _digest_file(path: Path, memory: Memory, mounts: Mounts, progress: _Progress, clock: Callable[[], float]) -> str:
    with path.open("rb") as opened:
        version = Version.of(opened.fileno())
        doubt = mounts.doubt_of(opened.fileno(), version.ctime_ns)
        with memory.alone(version) as reading:
            found = reading.shared() or (memory.recall(version) if doubt is None else None)
            if found is None:
                found = _read(opened.fileno(), version.size, progress)
                if Version.of(opened.fileno()) != version or _version_at(path) != version:
                    raise Unreadable(f"{path} changed while it was read")
                if doubt is None and clock() - version.ctime_ns / 1e9 <= _SETTLED:
                    doubt = f"{path} was changed a moment ago"
                progress.not_remembered(doubt or memory.remember(version, found))
                reading.share(found)
        return found


def _version_at(path: Path) -> Version:
    with path.open("rb") as opened:
        return Version.of(opened.fileno())


def _read(file: int, size: int, progress: _Progress) -> str:
    """SHA-256 over the digests of a file's chunks."""

    def one(start: int) -> bytes:
        digest = hashlib.sha256()
        at, end = start, min(size, start + _CHUNK)
        while at < end:
            read = os.pread(file, min(_READ, end - at), at)
            if not read:
                raise Unreadable("a weight file became shorter while it was read")
            digest.update(read)
            at += len(read)
            progress.add(len(read))
        return digest.digest()

    whole = hashlib.sha256(str(size).encode())
    for chunk in _in_parallel(one, range(0, size, _CHUNK)):
        whole.update(chunk)
    return whole.hexdigest()


def _in_parallel(work: Callable[[int], bytes], jobs: Sequence[int]) -> list[bytes]:
    """In daemon threads: an engine that ends does not wait for them, as it would for those of an executor."""
    done: list[bytes] = [b""] * len(jobs)
    failed: list[Exception] = []
    numbers = itertools.count()

    def some() -> None:
        while not failed and (i := next(numbers)) < len(jobs):
            try:
                done[i] = work(jobs[i])
            except Exception as why:
                failed.append(why)

    threads = [
        threading.Thread(target=some, name="cenote-weights", daemon=True) for _ in range(min(_THREADS, len(jobs)) - 1)
    ]
    for each in threads:
        each.start()
    some()
    for each in threads:
        each.join()
    if failed:
        raise failed[0]
    return done


class _Progress:
    """Lines in the log while weights are read for more than a moment. Thread-safe."""

    def __init__(self, size: int, files: int) -> None:
        self._size, self._files = size, files
        self._done = 0
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._next = self._began + 1.0
        self._said = False
        self._not_remembered: str | None = None

    def not_remembered(self, reason: str | None) -> None:
        """`reason`: of one file. None: its digest is remembered."""
        self._not_remembered = self._not_remembered or reason

    def add(self, size: int) -> None:
        with self._lock:
            self._done += size
            now = time.monotonic()
            if now < self._next:
                return
            self._next = now + _PROGRESS
            self._said = True
            done = self._done
        logger.info(
            "reading %d weight files to tell them from others, %.1f of %.1f GiB; nothing is cached before that is done",
            self._files,
            done / 2**30,
            self._size / 2**30,
        )

    def end(self) -> None:
        took = time.monotonic() - self._began
        read = f"read {self._size / 2**30:.1f} GiB of weights in {took:.0f} s"
        if self._not_remembered is not None:
            logger.info("%s; not all of it is remembered: %s", read, self._not_remembered)
        elif self._said:
            logger.info("%s; this is remembered", read)
