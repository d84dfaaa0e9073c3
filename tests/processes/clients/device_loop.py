"""An engine whose device writes and reads blocks without end, until it is killed: device_loop.py SEED BLOCKS BYTES.

Each step reserves blocks, has a stream fill them, commits them behind it, pins what is there and has another stream
read it; it says a line a step.
"""

from __future__ import annotations

import random
import sys

import blocks
import cenote
import numpy as np
from cenote.copying import Strides
from cenote.tensors import pieces_of
from conftest import make_spec

seed, count, size = map(int, sys.argv[1:])
dice = random.Random(seed)
session = cenote.attach(make_spec("i", size))
device = cenote.Device("sim:0")
session.use_device(device)
saving, loading = device.stream(), device.stream()
source, target = (np.zeros((count, size), np.uint8) for _ in range(2))
writes, reads = (Strides(pieces_of(each, count)) for each in (source, target))
while True:
    first = dice.randrange(64)
    keys = blocks.keys_of("loop", first, dice.randrange(1, count))
    saving.record().wait(60)  # it reads the source
    for i, key in enumerate(keys):
        source[i] = blocks.content_of(key, size)
    try:
        slots = session.reserve(keys)
    except cenote.NoSpace:
        continue
    mine = [(i, slot) for i, slot in enumerate(slots) if isinstance(slot, cenote.Block)]
    if mine:
        writes.gather([i for i, _ in mine], [slot for _, slot in mine], stream=saving)
        session.commit_after([slot for _, slot in mine], saving)
    held = session.acquire(keys)
    reads.scatter(range(len(held)), held, stream=loading)
    held.release_after(loading)
    print(len(held), flush=True)
