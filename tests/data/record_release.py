"""Records what a release leaves behind, for tests of later ones.

record_release.py CHECKOUT, of that release with a build in `build`, writes release-VERSION/store.tar.xz, a path of the
tier NVMe with eight blocks, and attach.bin, the first frame of a client. Both are of the machine's byte order.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

CLIENT = """
import sys
import cenote

spec = cenote.InstanceSpec(id="recorded", model="m", dtype="bf16", layout="page_first", tokens_per_block=16,
                           groups={"full": {"parts": {"kv": 4096}}}, hash_scheme="sha256_cbor",
                           fingerprint=None, instance_group=None)
with cenote.attach(spec, socket=sys.argv[1]) as session:
    session.put([bytes([n]) * 32 for n in range(8)], [bytes([n]) * 4096 for n in range(8)])
"""


def client(checkout: Path, place: Path) -> list[str]:
    library = checkout / "build" / "libcenote.so"
    return [
        "env", f"CENOTE_LIBRARY={library}", f"PYTHONPATH={checkout / 'python'}",
        sys.executable, "-c", CLIENT, str(place),
    ]  # fmt: skip


def record_store(checkout: Path, work: Path, target: Path) -> None:
    program, store, place = checkout / "build" / "cenote", work / "store", work / "run" / "cenote.sock"
    store.mkdir(mode=0o700)
    sets = (f"node.runtime_dir={place.parent}", "dram.capacity=16MiB", "metrics.listen=off", f"nvme.paths=[{store}]")
    words = [word for each in (*sets, "nvme.capacity=64MiB") for word in ("--set", each)]
    environment = os.environ | {"STATE_DIRECTORY": str(work / "state")}
    with subprocess.Popen([program, "node", *words], env=environment, stdout=subprocess.DEVNULL) as node:
        try:
            while subprocess.run([program, "status", "--socket", place], capture_output=True, check=False).returncode:
                time.sleep(0.1)
            subprocess.run(client(checkout, place), check=True)
            time.sleep(2)  # what it stored is written behind
        finally:
            node.terminate()
    with tarfile.open(target, "w:xz") as archive:
        for name in ("data", "metadata"):  # without the holder's name
            archive.add(store / name, arcname=name)


def record_attach(checkout: Path, work: Path, target: Path) -> None:
    place = work / "cenote.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen()
        with subprocess.Popen(client(checkout, place), stderr=subprocess.DEVNULL) as process:
            with listener.accept()[0] as accepted:
                target.write_bytes(accepted.recv(1 << 16))
            process.terminate()


def main() -> None:
    checkout = Path(sys.argv[1]).resolve()
    version = subprocess.run(
        [checkout / "build" / "cenote", "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    folder = Path(__file__).resolve().parent / f"release-{version}"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cenote-") as work:
        record_store(checkout, Path(work), folder / "store.tar.xz")
        record_attach(checkout, Path(work), folder / "attach.bin")


if __name__ == "__main__":
    main()
