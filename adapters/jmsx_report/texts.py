"""
Tests which characters the texts of a column have, on the bytes of all texts at once.

Matching a regular expression with each text takes nearly three times as long.
"""

from __future__ import annotations

import polars as pl


def bytes_of(texts: pl.Series) -> pl.Series:
    """Return the bytes of all texts, concatenated, as numbers from 0 to 255."""
    size = int(texts.str.len_bytes().sum())
    if not size:
        return pl.Series(dtype=pl.UInt8)
    together = texts.str.join("").cast(pl.Binary)
    return together.bin.reinterpret(dtype=pl.Array(pl.UInt8, size)).explode()


def are_plain(texts: pl.Series) -> bool:
    """Return whether no text has a character that JSON escapes, so that each is written unchanged."""
    found = bytes_of(texts)
    return not ((found < ord(" ")) | (found == ord('"')) | (found == ord("\\"))).any()


def are_hexadecimal(texts: pl.Series) -> bool:
    """Return whether all texts have no other characters than 0 to 9 and a to f."""
    found = bytes_of(texts)
    return bool((found.is_between(ord("0"), ord("9")) | found.is_between(ord("a"), ord("f"))).all())
