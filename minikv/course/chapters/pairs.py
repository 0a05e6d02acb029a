"""The stretch of chapter 02: which models promise more than a card holds, and what opens a gap that was closed."""

from __future__ import annotations

from typing import Any

from minikv.course.chapters.ex_2_1 import bytes_per_token, twelve
from minikv.course.chapters.ex_2_2 import GIB, gap, parameters

CARDS = (16, 24, 80, 141)  # GiB
PIECE = 16


def open_pairs() -> set[tuple[str, int]]:
    """Every (model, card) that promises one user more than it holds, all at 16 bit."""
    configs, params = twelve(), parameters()
    return {(name, card) for name in configs for card in CARDS if gap(configs[name], params[name], card, PIECE)[1] > 0}


def count_pairs(found: Any) -> None:
    """Say how many of the pairs were found, and how many of those found are none."""
    if found is ... or found is None:
        print("[ ] no pairs yet")
        return
    try:
        mine = {(str(name), int(card)) for name, card in found}
    except (TypeError, ValueError):
        print('[x] Give pairs such as ("gpt2", 16): the name of a model and the GiB of a card.')
        return
    every = open_pairs()
    print(f"{len(mine & every)} of {len(every)} pairs, and {len(mine - every)} that are none")


def try_change(change: Any) -> None:
    """Say whether one number opens a gap that was closed: (model, card, "users" or "bits", number)."""
    if change is ... or change is None:
        print("[ ] no change yet")
        return
    try:
        name, card, what, number = change
        config, params = twelve()[name], parameters()[name]
        users, bits = {"users": (int(number), 16), "bits": (1, int(number))}[what]
        if card not in CARDS or users < 1 or bits < 1 or number != int(number):
            raise ValueError
    except (TypeError, ValueError, KeyError):
        print('[x] Give four things, such as ("gpt2", 16, "users", 2). Cards: 16, 24, 80, 141. "users" or "bits".')
        return
    fits, missing = gap(config, params, card, PIECE)
    context = fits + missing
    if missing > 0:
        print(f"[x] {name} on {card} GiB: this gap is open already, {missing:,} tokens.")
        return
    left = max(0, card * GIB - params * bits // 8)
    after = int(left // (bytes_per_token(config, 1) * bits / 8 * PIECE)) // users * PIECE
    print(f"{name} on {card} GiB: promised {context:,} tokens, and {fits:,} fit.")
    print(f"With {number} {what}: {after:,} for each user, {context - after:,} are missing.")
    print("The gap is open." if after < context else "The gap is still closed.")
