"""Whole numbers of as many bytes as they need, as Protocol Buffers and LevelDB write them."""

from __future__ import annotations


def coded(n: int) -> bytes:
    """Returns a number of seven bits a byte, lowest first."""
    found = bytearray()
    while n > 127:
        found.append(n & 127 | 128)
        n >>= 7
    found.append(n)
    return bytes(found)
