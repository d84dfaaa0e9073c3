"""Stores eight blocks, looks them up, reads them in place and as copies, and shows how mistakes are answered.

`cenote node` must be running; CENOTE_SOCKET says where, if not in the default place. Ends with 0 when all was right.
"""

from __future__ import annotations

import hashlib
import sys

import cenote

COUNT = 8
BLOCK_BYTES = 64 * 1024


def chained_keys() -> list[bytes]:
    """An engine has keys already: digests that stand for a block's tokens and everything before them."""
    keys = [hashlib.sha256(b"the first tokens").digest()]
    while len(keys) < COUNT:
        keys.append(hashlib.sha256(keys[-1] + b"the next tokens").digest())
    return keys


def put_and_get(session: cenote.Session) -> None:
    keys = chained_keys()
    blocks = [bytes([number]) * BLOCK_BYTES for number in range(COUNT)]

    stored = session.put(keys, blocks)  # what is present already is not stored again
    print(f"put: {COUNT} blocks, {stored} of them new")

    found = session.match([*keys, hashlib.sha256(b"nobody stored this").digest()])
    print(f"match: the first {found.resident} blocks are resident; a miss is no error")
    assert found.resident == COUNT

    with session.acquire(keys) as held:  # pinned until the end of this block: read in place
        assert all(block.view("kv") == content for block, content in zip(held, blocks, strict=True))
    print("acquire: the bytes are the same, and nothing was copied")

    copies = bytearray(COUNT * BLOCK_BYTES)  # one buffer for all; a NumPy array or a torch tensor would do
    assert session.get_into(keys, copies) == COUNT
    assert copies == b"".join(blocks)
    print("get_into: the copies are the same")

    ticket = session.prefetch(keys)  # brings up what is in lower tiers; here all is in DRAM
    assert ticket.wait(timeout=5.0) == COUNT
    ticket.release()


def make_mistakes(session: cenote.Session, spec: cenote.InstanceSpec) -> None:
    try:
        session.get_into(chained_keys(), bytearray(COUNT * BLOCK_BYTES - 1))
    except cenote.InvalidArgument as why:
        print(f"a buffer of a wrong size: {why.code}: {why}")
    else:
        raise AssertionError("a wrong size was taken")

    other = cenote.InstanceSpec(id=spec.id, model="another", tokens_per_block=16, parts={"kv": BLOCK_BYTES})
    try:
        cenote.attach(other).close()
    except cenote.SpecMismatch as why:
        print(f"another spec under the same id: {why.code}: {why}")
    else:
        raise AssertionError("another spec was taken")


def main() -> int:
    spec = cenote.InstanceSpec(id="example-python", model="a-model", tokens_per_block=16, parts={"kv": BLOCK_BYTES})
    try:
        session = cenote.attach(spec, client_name="example")
    except cenote.NotRunning as why:
        print(why, file=sys.stderr)
        return 1
    with session:
        put_and_get(session)
        make_mistakes(session, spec)
    print("all as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
