"""A plug-in over a directory: a block is the file ROOT/INSTANCE/SPEC/KEY-EXTENT, where ROOT is `root_path` of the
storage. For tests, and to begin a plug-in from.

manager.plugins = ["dummy=/venv/bin/python -m cenote.manager_plugins.directory"]
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Sequence

from . import Address, Outcome, Plugin, Room, Storage, serve

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TEXT = b"a plug-in of Cenote looks whether this storage works\n"


@contextlib.contextmanager
def _opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    file = os.open(path, flags, 0o600, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)


class Directory(Plugin):
    """Each folder is opened beneath the one before, and no symbolic link is followed: no name leads out of the root."""

    def probe(self, storage: Storage) -> Room:
        root = self._root(storage)
        os.makedirs(root, exist_ok=True)
        name = f".cenote-probe-{os.getpid()}"
        with _opened(root, os.O_RDONLY | os.O_DIRECTORY) as folder:
            try:
                with _opened(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, folder) as file:
                    os.pwrite(file, _TEXT, 0)
                    if os.pread(file, len(_TEXT), 0) != _TEXT:
                        raise OSError(f"{root} gives back other bytes than were written")
                is_full = False
            except OSError as why:
                if why.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                is_full = True  # which hinders no reader
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            room = os.fstatvfs(folder)
        return Room(0 if is_full else room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize)

    def remove(self, storage: Storage, uris: Sequence[str]) -> list[Outcome]:
        return [self._remove(storage, uri) for uri in uris]

    def exist(self, storage: Storage, uris: Sequence[str]) -> list[Outcome]:
        return [self._exist(storage, uri) for uri in uris]

    @staticmethod
    def _root(storage: Storage) -> str:
        root = str(storage.spec.get("root_path", ""))
        if not root.startswith("/"):
            raise ValueError(f"root_path of storage {storage.name} is no absolute path: {root!r}")
        return root

    def _remove(self, storage: Storage, uri: str) -> Outcome:
        try:
            address = Address.parse(uri)
            with self._folders(storage, address) as (root, instance, spec):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(address.block, dir_fd=spec)
                with contextlib.suppress(OSError):  # folders that are not empty stay
                    os.rmdir(address.spec, dir_fd=instance)
                    os.rmdir(address.instance, dir_fd=root)
        except (FileNotFoundError, NotADirectoryError):
            return os.path.isdir(self._root(storage)) or "the root is not there"
        except (OSError, ValueError) as why:
            return str(why)
        return True

    def _exist(self, storage: Storage, uri: str) -> Outcome:
        try:
            address = Address.parse(uri)
            with self._folders(storage, address) as (_, _, spec):
                os.stat(address.block, dir_fd=spec, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as why:
            return str(why)
        return True

    @contextlib.contextmanager
    def _folders(self, storage: Storage, address: Address) -> Iterator[tuple[int, int, int]]:
        """Descriptors of the root, and of the folders of the instance and of the spec."""
        with (
            _opened(self._root(storage), os.O_RDONLY | os.O_DIRECTORY) as root,
            _opened(address.instance, _FOLDER, root) as instance,
            _opened(address.spec, _FOLDER, instance) as spec,
        ):
            yield root, instance, spec


def main() -> int:
    return serve(Directory())


if __name__ == "__main__":
    sys.exit(main())
