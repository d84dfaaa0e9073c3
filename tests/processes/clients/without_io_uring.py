"""Runs a command for which the kernel forbids io_uring, as containers do: without_io_uring.py ERRNO COMMAND…"""

import ctypes
import os
import platform
import struct
import sys

SECCOMP_SET_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 1, 38
SECCOMP = {"x86_64": 317, "aarch64": 277}
IO_URING_SETUP = 425  # on all machines
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def main() -> None:
    refusal = int(sys.argv[1])
    program = [
        (LOAD, 0, 0, 0),  # the call's number
        (EQUAL, 0, 1, IO_URING_SETUP),
        (RETURN, 0, 0, ERRNO | refusal),
        (RETURN, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    filter_of = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.syscall(SECCOMP[platform.machine()], SECCOMP_SET_MODE_FILTER, 0, filter_of) != 0:
        sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
    os.execv(sys.argv[2], sys.argv[2:])


main()
