"""What ranks of a test say; the test computes the same."""

from __future__ import annotations


def length_of(question: int, rank: int) -> int:
    """What a rank has for a question."""
    return 100 + (question * 7 + rank * 13) % 50
