"""From tokens to text, piece by piece: never cut inside a character, and ended before a stop text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os.path import commonprefix

BROKEN = "\ufffd"  # what a decoder gives for bytes that are no whole character
LONGEST_CHARACTER = 4  # bytes, so at most as many tokens


class Detokenizer:
    """The text of one answer as it grows.

    A piece of text is final when a decoder can no longer change it: tokens are decoded together with those of the
    piece before, and nothing is given out while the text ends in a broken character.

    Args:
        decode: text of some tokens, without special ones.
        prompt_ids: what the answer follows; looked at only if it ends inside a character.
        stop: texts that end the answer.

    Attributes:
        text: the final text so far; it may still lack a tail that could become a stop text.
        stopped: a stop text was found. `text` ends before it and does not change any more.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], prompt_ids: Sequence[int] = (), stop: Sequence[str] = ()
    ) -> None:
        self.text = ""
        self.stopped = False
        self._decode = decode
        self._stop = tuple(stop)
        self._ids = _unfinished(decode, prompt_ids)
        self._tail = len(self._ids)  # of the prompt
        self._before, self._done = 0, self._tail  # tokens decoded along, and tokens whose text is final
        self._held = ""  # final, but perhaps the beginning of a stop text

    def push(self, token: int, *, may_stop: bool = True) -> None:
        """Take in one more token; with `may_stop=False` a stop text is not looked for yet."""
        if self.stopped:
            return
        self._ids.append(token)
        new, stops = self._new_text(), self._stop if may_stop else ()
        whole = new.rstrip(BROKEN)
        if new and new == whole:
            self._before = self._done if self._done > self._tail else 0  # never inside a character
            self._done = len(self._ids)
            self._add(new, stops)
        elif any(stop in self._held + whole for stop in stops):
            self._add(whole, stops)

    def finish(self) -> None:
        """No more tokens come: give out what was held back, a broken character too."""
        if self.stopped:
            return
        self._add(self._new_text(), ())
        self._done = len(self._ids)

    def _new_text(self) -> str:
        final, together = self._decode(self._ids[self._before : self._done]), self._decode(self._ids[self._before :])
        if not together.startswith(final):
            if not final.endswith(BROKEN):  # bytes that are no character yet spoil those next to them
                return self._decode(self._ids[self._done :])
            # The answer completes the prompt's last character.
            final = commonprefix([final, together])  # noqa: RUF071 - of texts, not of paths
        return together[len(final) :]

    def _add(self, new: str, stops: Sequence[str]) -> None:
        pending = self._held + new
        found = [index for index in map(pending.find, stops) if index >= 0]
        if found:
            self.text += pending[: min(found)]
            self._held, self.stopped = "", True
            return
        keep = max((_overlap(pending, stop) for stop in stops), default=0)
        self.text += pending[: len(pending) - keep]
        self._held = pending[len(pending) - keep :]


def _unfinished(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> list[int]:
    """The last tokens of a prompt, if they begin a character that they do not end."""
    for count in range(LONGEST_CHARACTER):
        end = len(ids) - count
        starts = range(max(0, end - LONGEST_CHARACTER), end)
        if end <= 0 or any(not decode(ids[start:end]).endswith(BROKEN) for start in reversed(starts)):
            return list(ids[max(0, end) :])
    return []  # no text, however it is looked at


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
