# Carillon · parts.py
# SPDX-License-Identifier: Apache-2.0
"""The parts of a Redis Cluster (docs/scaling.md#redis-cluster)."""

from __future__ import annotations

from binascii import crc_hqx
from functools import cache
from itertools import count, product
from string import ascii_lowercase

MOST_PARTS = 256
_SLOTS = 16_384


@cache
def part_tags(parts: int = 16) -> tuple[str, ...]:
    """Returns the hash tags of the parts, in their order.

    A tag is the first word, by length and then by the alphabet, in the slot in the middle of its
    part.

    Raises:
        ValueError: `parts` is not 1 to 256.
    """
    if not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"parts: must be 1 to {MOST_PARTS}")
    wanted = {(2 * part + 1) * _SLOTS // (2 * parts): part for part in range(parts)}
    tags = [""] * parts
    for length in count(1):
        for letters in product(ascii_lowercase, repeat=length):
            word = "".join(letters)
            # Redis hashes keys with CRC-16/XMODEM.
            part = wanted.pop(crc_hqx(word.encode(), 0) % _SLOTS, None)
            if part is not None:
                tags[part] = word
                if not wanted:
                    return tuple(tags)
    raise AssertionError("unreachable")


def part_of(user: str, parts: int = 16) -> str:
    """Returns the start of the names of a user's streams, such as `carillon:{agbr}:`.

    `parts` is the number in the key `carillon:parts`. With one part, the start is `carillon:`.
    """
    if parts == 1:
        return "carillon:"
    value = 2_166_136_261
    for byte in user.encode():
        value = (value ^ byte) * 16_777_619 % 2**32
    return f"carillon:{{{part_tags(parts)[value % parts]}}}:"
