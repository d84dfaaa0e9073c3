"""Shows a running node at work: writes eight blocks, finds them, reads them in place, compares the bytes."""

import hashlib
import time

import cenote

BLOCK = 2 << 20
COUNT = 8


def content(key: bytes) -> bytes:
    """Bytes that only this block can have."""
    return hashlib.sha256(key).digest() * (BLOCK // 32)


def main() -> None:
    spec = cenote.InstanceSpec(
        id="demo",
        model="llama-3-8b",
        dtype="bf16",
        layout="page_first",
        tokens_per_block=64,
        groups={"full": {"parts": {"kv": BLOCK}}},
        hash_scheme="sha256_cbor",
        fingerprint=None,
        instance_group=None,
    )
    # A block key is chained: it stands for its tokens and everything before them.
    keys: list[bytes] = []
    for number in range(COUNT):
        keys.append(hashlib.sha256((keys[-1] if keys else b"") + number.to_bytes(4, "little")).digest())
    blocks = [content(key) for key in keys]

    with cenote.attach(spec) as session:
        print(f"before: {session.match(keys, group='full').resident} of {COUNT} blocks are resident")
        start = time.perf_counter()
        stored = session.put(keys, blocks, group="full")
        seconds = time.perf_counter() - start
        rate = COUNT * BLOCK / seconds / 1e9
        print(f"put: {stored} blocks of {BLOCK >> 20} MiB, {rate:.1f} GB/s with the first touch")

        found = session.match([*keys, b"not a key of the prefix, 32 byte"], group="full")
        print(f"match: a prefix of {found.resident} blocks")

        with session.acquire(keys, group="full") as held:
            same = [bytes(block.view("kv")) == content(key) for key, block in zip(keys, held, strict=True)]
        print(f"acquire: {len(same)} blocks read where they lie, {same.count(True)} hold the right bytes")

        targets = [bytearray(BLOCK) for _ in keys]
        session.get_into(keys, targets, group="full")
        start = time.perf_counter()
        copied = session.get_into(keys, targets, group="full")
        seconds = time.perf_counter() - start
        print(f"get_into: {copied} blocks copied, {COUNT * BLOCK / seconds / 1e9:.1f} GB/s")

        assert stored == copied == found.resident == COUNT and all(same) and targets == blocks


if __name__ == "__main__":
    main()
