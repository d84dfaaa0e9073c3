"""An engine that is killed while a device still writes: gpu_engine.py LIBRARY FIFO BLOCKS BYTES USES_DEVICE.

It reserves blocks, has a process that shares its memory write into them once a byte comes through FIFO, says that
process's number, and waits to be killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from array import array

import blocks
import cenote
from conftest import make_spec

library, fifo, count, size, uses_device = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
session = cenote.attach(make_spec("i", size))
if uses_device:
    session.use_device(cenote.Device("sim:0"))
slots = session.reserve(blocks.keys_of("engine", 0, count))
places = array("Q", [slot.address() for slot in slots if isinstance(slot, cenote.Block)])
assert len(places) == count
for place in places:
    ctypes.memset(place, 0xDD, size)  # its pages are mapped
told = os.open(fifo, os.O_RDWR)
writer = ctypes.CDLL(library).start_late_writer(
    ctypes.c_void_p(places.buffer_info()[0]), ctypes.c_uint64(count), ctypes.c_uint64(size), told
)
print(writer, flush=True)
signal.pause()
