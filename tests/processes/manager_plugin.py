"""A plug-in of tests: the one over a directory, which does the harm that stands in a file.

manager_plugin.py CONTROL-FILE

A byte in CONTROL-FILE.sound counts each sound answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from cenote.manager_plugins import _protocol
from cenote.manager_plugins.directory import Directory

LONG = 3_000_000  # bytes of a line, beyond what a manager reads


def harmed(harm: str, line: bytes, sound: bytes) -> bytes:
    """The line in the place of a sound answer. Some kinds do not come back."""
    question, answer = json.loads(line), json.loads(sound)
    if harm == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if harm == "hang":
        signal.pause()
    if harm == "exit":
        sys.exit(7)
    changes: dict[str, bytes] = {
        "": sound,
        "garbage": b"no json\n",
        "long": b"x" * LONG + b"\n",
        "wrong id": json.dumps({**answer, "id": question["id"] + 1}).encode() + b"\n",
        "short": json.dumps({**answer, "results": []}).encode() + b"\n",
        "wrong type": json.dumps({**answer, "results": [[1]]}).encode() + b"\n",
        "extra": sound + sound,
        "error": json.dumps({"id": question["id"], "error": "no such disk"}).encode() + b"\n",
    }
    if harm == "full" and question["op"] == "probe":
        answer["results"] = [{"free_bytes": 1, "total_bytes": 100}]
        return json.dumps(answer).encode() + b"\n"
    return changes.get(harm, sound)


def main() -> int:
    control, plugin = Path(sys.argv[1]), Directory()
    for line in iter(sys.stdin.buffer.readline, b""):
        harm = control.read_text()
        out = harmed(harm, line, _protocol.answer(plugin, line))
        sys.stdout.buffer.write(out)
        sys.stdout.buffer.flush()
        if not harm:
            with control.with_suffix(".sound").open("ab") as counter:
                counter.write(b".")
    return 0


if __name__ == "__main__":
    sys.exit(main())
