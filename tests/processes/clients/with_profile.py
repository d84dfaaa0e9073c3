"""Runs a command under a seccomp profile of the form that container runtimes read: with_profile.py PROFILE COMMAND…"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
COMPARISONS = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}


class Comparison(ctypes.Structure):
    """Of one argument of a call, as libseccomp has it."""

    _fields_ = (("index", ctypes.c_uint), ("kind", ctypes.c_int), ("one", ctypes.c_uint64), ("two", ctypes.c_uint64))


def library() -> Any:
    found = ctypes.CDLL("libseccomp.so.2")
    found.seccomp_init.restype = ctypes.c_void_p
    found.seccomp_load.argtypes = [ctypes.c_void_p]
    found.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(Comparison),
    ]
    return found


def load(profile: dict[str, Any]) -> None:
    """For this machine's architecture. Names that it does not know are left out, as runtimes leave them out."""
    seccomp = library()
    rules = seccomp.seccomp_init(ctypes.c_uint32(ERRNO | profile["defaultErrnoRet"]))
    for entry in profile["syscalls"]:
        tests = [
            Comparison(each["index"], COMPARISONS[each["op"]], each["value"], each.get("valueTwo", 0))
            for each in entry.get("args", [])
        ]
        for name in entry["names"]:
            number = seccomp.seccomp_syscall_resolve_name(name.encode())
            if number < 0:
                continue
            failed = seccomp.seccomp_rule_add_array(rules, ALLOW, number, len(tests), (Comparison * len(tests))(*tests))
            if failed:
                sys.exit(f"seccomp: {name}: {os.strerror(-failed)}")
    if failed := seccomp.seccomp_load(rules):
        sys.exit(f"seccomp: {os.strerror(-failed)}")


if __name__ == "__main__":
    load(json.loads(Path(sys.argv[1]).read_text()))
    os.execv(sys.argv[2], sys.argv[2:])
