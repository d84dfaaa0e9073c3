"""The times of a file distinguish its versions only where the kernel of this machine has set them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cenote._mounts import Mounts

LINES = {
    1: "1 0 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard",
    2: "2 1 254:0 /models /models ro,relatime - ext4 /dev/vda rw",
    3: "3 1 254:1 / /image rw - ext4 /dev/vdb ro",
    4: "4 1 0:7 / /loop rw - btrfs /dev/loop0 rw",
    5: "5 1 7:0 / /squash ro - squashfs /dev/loop1 ro,errors=continue",
    6: "6 1 0:31 / /nfs rw - nfs4 server:/models rw",
    7: "7 1 0:32 / /fuse rw - fuse.sshfs me@there:/ rw",
    8: r"8 1 0:33 / /run rw - overlay overlay rw,lowerdir=/a\040b:/lower,upperdir=/upper,workdir=/squash",
    9: "9 1 0:34 / /run rw - overlay overlay rw,lowerdir=/lower:/squash,upperdir=/upper,workdir=/work",
    10: "10 1 0:35 / /run rw - overlay overlay rw,lowerdir=l/AB:l/CD,upperdir=/upper",
    11: "11 1 0:36 / /run rw - overlay overlay rw",
    12: "12 1 0:37 / /dev/shm rw - tmpfs tmpfs rw",
    13: "13 1 0:38 / /run rw - overlay overlay rw,lowerdir+=/meta,datadir+=/squash,upperdir=/upper",
    14: "14 1 0:39 / /run rw - overlay overlay rw,lowerdir=/inner,upperdir=/upper",
}
PATHS = {"/a b": 1, "/lower": 1, "/upper": 12, "/squash": 5, "/meta": 1, "/inner": 9}


@pytest.mark.parametrize(
    ("number", "doubt"),
    [
        (1, None),
        (2, None),  # a mount that is read-only of a file system that is not
        (3, "/dev/vdb may be an image"),
        (4, "/dev/loop0 may be an image"),
        (5, "of squashfs"),
        (6, "of nfs4"),
        (7, "of fuse.sshfs"),
        (8, None),
        (9, "a layer of an overlay: times of files of squashfs"),
        (10, "a layer of an overlay: the file system of a file is not known"),
        (11, "the layers of an overlay are not known"),
        (12, None),
        (13, "of squashfs"),
        (14, "a layer of an overlay: a layer of an overlay"),
        (99, "not known"),
    ],
)
def test_only_a_local_writable_file_system_has_times_of_the_kernel(number: int, doubt: str | None) -> None:
    found = Mounts("\n".join(LINES.values()), PATHS.get).doubt_of_mount(number)
    assert found is None if doubt is None else found is not None and doubt in found


def test_a_time_of_whole_seconds_is_not_the_kernels(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as opened:
        found = Mounts().doubt_of(opened.fileno(), 1_700_000_000 * 10**9)
    assert found is not None
    assert "kernel" in found


def test_an_open_file_is_found_in_the_table_of_mounts() -> None:
    opened = os.open("/proc/self/status", os.O_RDONLY)
    try:
        assert Mounts().doubt_of(opened, 1) == "times of files of proc do not tell their versions apart"
    finally:
        os.close(opened)
