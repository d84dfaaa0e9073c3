"""Weights are told by their content, which is read once a version of a file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from cenote import _weights
from cenote._mounts import Mounts
from cenote._weights import Memory, Unreadable, Version, changed_after, digest_of, files_of, process_began


def later() -> float:
    """A clock that is past the moment in which a change could be followed by another one of the same time."""
    return time.time() + 60


def make(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def model(folder: Path, more: Mapping[str, bytes] | None = None) -> Path:
    return make(folder, {"a.safetensors": b"weights" * 999, "config.json": b"{}", **(more or {})})


def version_of(path: Path) -> Version:
    with path.open("rb") as opened:
        return Version.of(opened.fileno())


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "cache" / "weights")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of files that were read."""
    counted: list[int] = []
    real = _weights._read

    def read(file: int, size: int, progress: _weights._Progress) -> str:
        counted.append(size)
        return real(file, size, progress)

    monkeypatch.setattr(_weights, "_read", read)
    return counted


def test_the_same_files_elsewhere_are_the_same_weights(tmp_path: Path, memory: Memory) -> None:
    here = model(tmp_path / "here")
    there = model(tmp_path / "there" / "renamed", {"README.md": b"x", "tokenizer.json": b"t", ".git/b.bin": b""})
    os.utime(there / "a.safetensors", (1, 1))
    assert digest_of(files_of(here), memory) == digest_of(files_of(there), memory)


def test_what_training_left_and_links_in_a_circle_do_not_count(tmp_path: Path) -> None:
    left = {"checkpoint-500/a.safetensors": b"", "optimizer.pt": b"", "original/x.pth": b"", "training_args.bin": b""}
    folder = model(tmp_path / "model", {**left, "vision/b.safetensors": b""})
    (folder / "vision" / "circle").symlink_to(folder)
    assert [each.name for each in files_of(folder)] == ["a.safetensors", "config.json", "vision/b.safetensors"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.safetensors", b"weights" * 998 + b"Weights"),
        ("b.safetensors", b""),
        ("config.json", b"{ }"),
        ("code/model.py", b"pass"),
        ("quantize_config.json", b"{}"),
    ],
)
def test_other_contents_or_names_are_other_weights(tmp_path: Path, memory: Memory, name: str, content: bytes) -> None:
    first, second = model(tmp_path / "first"), model(tmp_path / "second", {name: content})
    assert digest_of(files_of(first), memory) != digest_of(files_of(second), memory)


def test_a_file_is_read_once_a_version(tmp_path: Path, memory: Memory, reads: list[int]) -> None:
    files = files_of(model(tmp_path / "model"))
    first = digest_of(files, memory, later)
    assert len(reads) == 2
    assert digest_of(files, memory, later) == first
    assert len(reads) == 2


def test_a_change_that_keeps_size_and_time_is_noticed(tmp_path: Path, memory: Memory) -> None:
    files = files_of(model(tmp_path / "model"))
    first = digest_of(files, memory, later)
    path = tmp_path / "model" / "a.safetensors"
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the kernel's clock for files has steps of milliseconds
        with path.open("r+b") as opened:
            opened.seek(5000)
            opened.write(b"!")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert digest_of(files, memory, later) != first


def test_a_change_of_just_now_is_not_remembered(tmp_path: Path, memory: Memory, reads: list[int]) -> None:
    files = files_of(model(tmp_path / "model"))
    digest_of(files, memory)
    digest_of(files, memory)
    assert len(reads) == 4


def test_a_damaged_memory_is_read_anew(tmp_path: Path, memory: Memory, reads: list[int]) -> None:
    files = files_of(model(tmp_path / "model"))
    first = digest_of(files, memory, later)
    entries = sorted(each for each in memory._folder.iterdir() if each.suffix != ".lock")
    assert [each.stat().st_mode & 0o777 for each in entries] == [0o600] * 2
    damages = (b"", b"{}", b"[1]", b"\xff", entries[0].read_bytes().replace(b'"digest": "', b'"digest": "0'))
    for damage in damages:
        for each in entries:
            each.write_bytes(damage)
        del reads[:]
        assert digest_of(files, memory, later) == first
        assert len(reads) == 2


def test_a_memory_of_another_version_is_not_believed(tmp_path: Path, memory: Memory) -> None:
    one, two = Version(1, 2, 3, 4, 5), Version(1, 2, 3, 4, 6)
    memory.remember(one, "0" * 64)
    memory._place(two).write_bytes(memory._place(one).read_bytes())
    assert memory.recall(one) == "0" * 64
    assert memory.recall(two) is None


def test_the_memory_is_bounded(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_weights, "_KEPT", 3)
    for i in range(10):
        memory.remember(Version(1, i, 3, 4, 5), "0" * 64)
    assert len(list(memory._folder.iterdir())) == 3
    assert memory.recall(Version(1, 9, 3, 4, 5)) is not None


def test_a_memory_that_cannot_be_written_costs_only_time(tmp_path: Path, reads: list[int]) -> None:
    (tmp_path / "file").write_text("not a folder")
    files = files_of(model(tmp_path / "model"))
    blocked = Memory(tmp_path / "file" / "weights")
    assert digest_of(files, blocked, later) == digest_of(files, blocked, later)
    assert len(reads) == 4


def test_a_user_without_a_home_has_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[int]) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    files = files_of(model(tmp_path / "model"))
    assert digest_of(files, clock=later) == digest_of(files, clock=later)
    assert len(reads) == 4


def test_two_processes_read_a_file_once(tmp_path: Path, memory: Memory, reads: list[int]) -> None:
    files = files_of(model(tmp_path / "model"))
    version = version_of(files[0].path)
    waits = threading.Thread(target=digest_of, args=(files, memory, later))
    with memory.alone(version):  # as another process would that reads it now
        waits.start()
        waits.join(0.3)
        assert waits.is_alive()
        memory.remember(version, "0" * 64)
    waits.join()
    assert len(reads) == 1  # the other file


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files lie in an image, whose times mean nothing."""
    monkeypatch.setattr(Mounts, "doubt_of", lambda *_: "an image")


def test_files_whose_times_may_lie_are_read_at_each_start(
    tmp_path: Path, memory: Memory, reads: list[int], image: None, caplog: pytest.LogCaptureFixture
) -> None:
    files = files_of(model(tmp_path / "model"))
    for each in files:  # as an image with the same times had them
        memory.remember(version_of(each.path), "0" * 64)
    with caplog.at_level("INFO", "cenote"):
        first = digest_of(files, memory, later)
    assert digest_of(files, memory, later) == first
    assert len(reads) == 4
    assert [each.message.partition("; ")[2] for each in caplog.records] == ["not all of it is remembered: an image"]


def check_shared_reading(memory: Memory, folder: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two digests that wait for a file which is being read take what came of that, and read nothing."""
    files = files_of(folder)
    arrivals = threading.Semaphore(0)
    locked = _weights._locked

    def arrived(lock: int) -> bool:
        arrivals.release()
        return locked(lock)

    found: list[str] = []
    waits = [threading.Thread(target=lambda: found.append(digest_of(files, memory, later))) for _ in range(2)]
    with memory.alone(version_of(files[0].path)) as reading:
        monkeypatch.setattr(_weights, "_locked", arrived)
        for each in waits:
            each.start()
        for _ in waits:
            assert arrivals.acquire(timeout=30)
        reading.share("1" * 64)
    for each in waits:
        each.join()
    assert found[0] == found[1]
    assert reads.count(files[0].path.stat().st_size) == 0


def test_processes_that_wait_for_a_file_of_an_image_take_what_was_read_meanwhile(
    tmp_path: Path, memory: Memory, reads: list[int], image: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_shared_reading(memory, model(tmp_path / "model"), reads, monkeypatch)


def test_what_was_read_before_a_process_came_is_not_taken_for_a_file_of_an_image(
    tmp_path: Path, memory: Memory, reads: list[int], image: None
) -> None:
    files = files_of(model(tmp_path / "model"))
    version = version_of(files[0].path)
    with memory.alone(version) as reading:
        reading.share("1" * 64)
        left = Path(f"{memory._place(version)}.lock").read_bytes()
    Path(f"{memory._place(version)}.lock").write_bytes(left)  # as a process leaves it that is killed
    digest_of(files, memory, later)
    assert len(reads) == 2


def test_a_cache_that_cannot_be_written_is_reported_once_and_truthfully(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with caplog.at_level("INFO", "cenote"):
        digest_of(files_of(model(tmp_path / "model")), Memory(tmp_path / "file" / "weights"), later)
    (said,) = [each.message for each in caplog.records]
    assert "not all of it is remembered" in said
    assert "Not a directory" in said


def test_one_process_reads_for_all_that_wait_also_where_the_cache_cannot_be_written(
    tmp_path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks lie among the temporary files then, in a folder of the user's alone."""
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(_weights.tempfile, "gettempdir", lambda: str(tmp_path))
    memory = Memory(tmp_path / "file" / "weights")
    check_shared_reading(memory, model(tmp_path / "model"), reads, monkeypatch)


def test_a_folder_of_others_among_the_temporary_files_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(_weights.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / f"cenote-weights-{os.geteuid()}").mkdir(mode=0o777)
    (tmp_path / f"cenote-weights-{os.geteuid()}").chmod(0o777)
    files = files_of(model(tmp_path / "model"))
    with Memory(tmp_path / "file" / "weights").alone(version_of(files[0].path)) as reading:
        assert reading._lock is None


def test_a_process_that_is_stopped_while_it_reads_is_not_waited_for_for_ever(
    tmp_path: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_weights, "_LONGEST_WAIT", 0.2)
    files = files_of(model(tmp_path / "model"))
    with memory.alone(version_of(files[0].path)):
        assert digest_of(files, memory) == digest_of(files, Memory(tmp_path / "another"))


def test_chunks_are_read_in_parallel_and_in_order(
    tmp_path: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_weights, "_CHUNK", 1000)
    content = os.urandom(12345)
    first = digest_of(files_of(model(tmp_path / "first", {"a.safetensors": content})), memory)
    assert digest_of(files_of(model(tmp_path / "second", {"a.safetensors": content})), memory) == first
    swapped = content[1000:2000] + content[:1000] + content[2000:]
    assert digest_of(files_of(model(tmp_path / "third", {"a.safetensors": swapped})), memory) != first


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path, memory: Memory) -> None:
    path = model(tmp_path / "model") / "a.safetensors"
    with path.open("rb") as opened, pytest.raises(Unreadable, match="shorter"):
        _weights._read(opened.fileno(), path.stat().st_size + 1, _weights._Progress(1, 1))


def test_blobs_of_a_hub_were_not_changed_but_other_files_may_be(tmp_path: Path) -> None:
    blob = make(tmp_path / "blobs", {"a" * 64: b"weights"}) / ("a" * 64)
    folder = tmp_path / "snapshots" / "one"
    folder.mkdir(parents=True)
    (folder / "c.safetensors").symlink_to(blob)
    assert not changed_after(folder, files_of(folder), 0.0)
    (folder / "config.json").write_bytes(b"{}")
    assert changed_after(folder, files_of(folder), 0.0)
    assert not changed_after(folder, files_of(folder), later())


def after_a_tick(path: Path) -> float:
    """A moment that is after all changes so far, and before all later ones, on the clock of this file system."""
    path.write_bytes(b"")
    moment = path.stat().st_ctime
    while path.stat().st_ctime == moment:
        path.write_bytes(b"")
    return path.stat().st_ctime


@pytest.mark.parametrize("change", ["written", "renamed", "linked", "linked above"])
def test_weights_that_were_exchanged_are_noticed_though_their_files_are_old(tmp_path: Path, change: str) -> None:
    model(tmp_path / "old" / "m")
    model(tmp_path / "new" / "m", {"a.safetensors": b"others"})
    (tmp_path / "link").symlink_to(tmp_path / "old")
    (tmp_path / "model").symlink_to(tmp_path / "old" / "m")
    asked = {"linked": tmp_path / "model", "linked above": tmp_path / "link" / "m"}.get(change, tmp_path / "old" / "m")
    moment = after_a_tick(tmp_path / "clock")
    assert not changed_after(asked, files_of(asked), moment)
    if change == "written":
        (asked / "a.safetensors").write_bytes(b"others")
    elif change == "renamed":
        asked.rename(tmp_path / "away")
        (tmp_path / "new" / "m").rename(asked)
    else:
        link = tmp_path / ("model" if change == "linked" else "link")
        link.unlink()
        link.symlink_to(tmp_path / "new" / ("m" if change == "linked" else ""))
    assert (asked / "a.safetensors").read_bytes() == b"others"
    assert changed_after(asked, files_of(asked), moment)


def test_a_process_knows_when_it_began() -> None:
    assert time.time() - 3600 * 24 < process_began() < time.time()
