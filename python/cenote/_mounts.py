"""Whether the times of a file distinguish its versions: only where the kernel of this machine has set them.

An image (squashfs, erofs, ISO 9660, a disk image) carries the times that it was made with, and another image may be
mounted in its place; a file server and a FUSE program are free to answer any times.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_KERNEL_TIMES = {"btrfs", "ext4", "tmpfs", "xfs"}
_IMAGES = re.compile(r"(loop|nbd|ram|zram|sr)\d+.*")  # block devices whose content is a file, or comes from elsewhere
_LAYERS = {"lowerdir", "lowerdir+", "datadir+", "upperdir"}
_SECOND = 1_000_000_000  # nanoseconds
_DEPTH = 4  # overlays upon overlays


class Mount(NamedTuple):
    kind: str
    device: str  # major:minor
    source: str
    options: tuple[str, ...]  # of the file system, not of this mount of it: a writable one has its times either way


class Mounts:
    """Of this process, as they were when it was made."""

    def __init__(self, table: str | None = None, mount_at: Callable[[str], int | None] | None = None) -> None:
        """`table`: the text of a mountinfo. `mount_at`: the mount of a path. Both are for tests."""
        text = table if table is not None else Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        self._mounts = dict(map(_parsed, text.splitlines()))
        self._mount_at = mount_at or _mount_at

    def doubt_of(self, opened: int, changed_ns: int) -> str | None:
        """The reason to doubt the times of an open file; None: they are good. `changed_ns`: its ctime."""
        if changed_ns % _SECOND == 0:  # the kernel's have a fraction, those that makers of images set have none
            return "the time of a file's last change was not set by this machine's kernel"
        return self.doubt_of_mount(_mount_of(opened))

    def doubt_of_mount(self, number: int | None, depth: int = _DEPTH) -> str | None:
        mount = self._mounts.get(number) if number is not None else None
        if mount is None:
            return "the file system of a file is not known"
        if mount.kind == "overlay" and depth:
            return self._doubt_of_layers(mount, depth - 1)
        if mount.kind not in _KERNEL_TIMES:
            return f"times of files of {mount.kind} do not tell their versions apart"
        if "ro" in mount.options or _is_image(mount):
            return f"{mount.source} may be an image, whose times do not tell versions apart"
        return None

    def _doubt_of_layers(self, mount: Mount, depth: int) -> str | None:
        pairs = (each.partition("=") for each in mount.options)
        layers = [path for name, _, value in pairs if name in _LAYERS for path in _split(value)]
        if not layers:
            return "the layers of an overlay are not known"
        for layer in layers:
            doubt = self.doubt_of_mount(self._mount_at(layer), depth)
            if doubt is not None:
                return f"a layer of an overlay: {doubt}"
        return None


def _parsed(line: str) -> tuple[int, Mount]:
    before, _, after = line.partition(" - ")
    number, _, device, *_ = before.split(" ")
    kind, source, options, *_ = (*after.split(" "), "", "")
    return int(number), Mount(kind, device, _plain(source), tuple(map(_plain, options.split(","))))


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _split(paths: str) -> list[str]:
    return [each.replace("\\:", ":") for each in re.split(r"(?<!\\):", paths) if each]


def _mount_of(opened: int) -> int | None:
    found = re.search(r"^mnt_id:\s*(\d+)$", Path(f"/proc/self/fdinfo/{opened}").read_text(), re.MULTILINE)
    return int(found[1]) if found else None


def _mount_at(path: str) -> int | None:
    """None: it cannot be seen from here, as the layers of a container's files cannot."""
    if not os.path.isabs(path):
        return None
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _mount_of(opened)
    finally:
        os.close(opened)


def _is_image(mount: Mount) -> bool:
    device = Path(f"/sys/dev/block/{mount.device}")
    name = device.resolve().name if device.exists() else os.path.basename(mount.source)
    return _IMAGES.fullmatch(name) is not None
