"""Shows a running node at work: writes eight blocks, finds them, reads them in place, compares the bytes."""

import hashlib
import time

import cenote

BLOCK = 2 << 20
COUNT = 8


def spec_of(block: int) -> cenote.InstanceSpec:
    """An engine whose blocks have that many bytes."""
    return cenote.InstanceSpec(
        id="demo",
        model="llama-3-8b",
        dtype="bf16",
        layout="page_first",
        tokens_per_block=64,
        groups={"full": {"parts": {"kv": block}}},
        hash_scheme="sha256_cbor",
        fingerprint=None,
        instance_group=None,
    )


def conversation(name: str, count: int, block: int) -> tuple[list[bytes], list[bytes]]:
    """Chained keys, each for its tokens and everything before them, and bytes that only these blocks can have."""
    keys: list[bytes] = []
    for _ in range(count):
        keys.append(hashlib.sha256(keys[-1] if keys else name.encode()).digest())
    return keys, [hashlib.sha256(key).digest() * (block // 32) for key in keys]


def main() -> None:
    keys, blocks = conversation("demo", COUNT, BLOCK)
    with cenote.attach(spec_of(BLOCK)) as session:
        print(f"before: {session.match(keys, group='full').resident} of {COUNT} blocks are resident")
        start = time.perf_counter()
        stored = session.put(keys, blocks, group="full")
        seconds = time.perf_counter() - start
        rate = COUNT * BLOCK / seconds / 1e9
        print(f"put: {stored} blocks of {BLOCK >> 20} MiB, {rate:.1f} GB/s with the first touch")

        found = session.match([*keys, b"not a key of the prefix, 32 byte"], group="full")
        print(f"match: a prefix of {found.resident} blocks")

        with session.acquire(keys, group="full") as held:
            same = [bytes(block.view("kv")) == written for written, block in zip(blocks, held, strict=True)]
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
