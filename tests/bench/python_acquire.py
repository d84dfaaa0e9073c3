"""The zero-copy read from Python: what a pinned block costs, with and without a view of its bytes.

The limit of the pins is Python's own dictionary with the same keys: a lookup of each. That of the views is Python's own
price for as many memoryviews: slices of one that exists.
"""

from __future__ import annotations

import support
from support import KiB, Report

BLOCK = 64 * KiB
BLOCKS = 16_000
CHAIN = 1000


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    report = Report("python_acquire", options.json)
    import cenote

    with (
        support.node(BLOCKS * BLOCK // 8 * 9, "dram.populate=false") as node,
        cenote.attach(support.spec("acquire", BLOCK), socket=str(node.socket)) as session,
    ):
        names = support.keys("acquire", 0, BLOCKS)
        support.commit_unwritten(session, names)
        chains = [names[at : at + CHAIN] for at in range(0, BLOCKS, CHAIN)]
        turn = 0

        def chain() -> list[bytes]:
            nonlocal turn
            turn += 1
            return chains[turn % len(chains)]

        def acquire() -> None:
            with session.acquire(chain()) as held:
                assert len(held) == CHAIN

        def acquire_and_view() -> None:
            with session.acquire(chain()) as held:
                views = [block.view() for block in held]
                assert len(views) == CHAIN

        table = {name: number for number, name in enumerate(names)}

        def look_up() -> None:
            found = [table[name] for name in chain()]
            assert len(found) == CHAIN

        some = memoryview(bytearray(CHAIN * 64))

        def slices() -> None:
            views = [some[at : at + 64] for at in range(0, CHAIN * 64, 64)]
            assert len(views) == CHAIN

        steps = (acquire, acquire_and_view, look_up, slices)
        pinned, viewed, looked_up, sliced = support.median_time(options.rounds, *steps)
        scale = 1e6 / CHAIN
        report.add("1000 blocks pinned", pinned * scale, "us/block", looked_up * scale, "<= 5")
        report.add("1000 blocks pinned, a view of each", viewed * scale, "us/block", sliced * scale)
        report.add("bytes copied", session.stats()["bytes_copied_out"], "bytes", None, "<= 0 bytes")


if __name__ == "__main__":
    main()
