"""Own numbers: each student gets a server and a request of their own, worked out from the name.

    python -m minikv.course.own "Ada Lovelace" "Alan Turing"     a teacher's list: the numbers and the right counts
    python -m minikv.course.own --run NAME...                    ... and compare them with a run
    python -m minikv.course.own --term 2027 NAME...              other numbers for the same names

A student writes

    from minikv.course.own import own_numbers, own_stage
    mine = own_numbers("Ada Lovelace")
    stage = own_stage(mine)        # the historical cluster at these sizes; its past has been played
    answer = stage.attack()        # the request that must be refused
    stage.measure(answer)          # what the server's own books say

The stale pages are 5 to 11 and never 7, so a count copied from the lesson or from a neighbour shows. Whoever reads this
file can work out the counts: that is understanding, and worth the mark.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from minikv.errors import ConfigError

if TYPE_CHECKING:
    from minikv.incident.stage import Stage
    from minikv.models.adapter import BoundModel

PAGE_SIZES = (12, 16, 20, 24, 32, 40)
STALE = (5, 6, 8, 9, 10, 11)
VICTIMS = ("ash", "birch", "cedar")
ANSWER = 4  # tokens of the request that must be refused
CONTEXT = 4096
MARGIN = 6  # a historical node refuses from this many tokens below the size of its pool


@dataclass(frozen=True)
class Victim:
    """An earlier tenant of the server: its secret, and how many tokens it sent and got."""

    name: str
    code: str = field(repr=False)
    prompt_tokens: int
    answer_tokens: int

    @property
    def text(self) -> str:
        """The prompt: the secret, again and again. One letter is one token for the model used here."""
        line = f"{self.name}={self.code} "
        return (line * self.prompt_tokens)[: self.prompt_tokens]


@dataclass(frozen=True)
class OwnNumbers:
    """One student's server, its past, and the request that must be refused.

    Attributes:
        student: the name as it was taken: small letters, single blanks.
        page_size: token slots in a page, on both nodes.
        prefill_pages, decode_pages: pages in the pools of the node that reads prompts and of the one that answers.
        prompt_tokens: of the request that must be refused.
        victims: who was served before, one after the other.
    """

    student: str
    page_size: int
    prefill_pages: int
    decode_pages: int
    prompt_tokens: int
    victims: tuple[Victim, ...]


@dataclass(frozen=True)
class Counts:
    """What happens with one student's numbers.

    Attributes:
        window: shortest and longest prompt that prefill refuses and decode takes.
        reserved, written, stale: pages of the decode node.
        foreign_slots: slots that were read though the request had not written them.
        stale_of: of each victim, the stale pages that it wrote.
    """

    window: tuple[int, int]
    reserved: int
    written: int
    stale: int
    foreign_slots: int
    stale_of: dict[str, int]


class _Draws:
    """Choices that follow from a text alone, on every machine and in every version of Python."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._drawn = 0

    def below(self, limit: int) -> int:
        """A whole number from 0 to `limit` - 1."""
        self._drawn += 1
        digest = hashlib.sha256(f"{self._text}\0{self._drawn}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % limit


def own_numbers(student: str, term: str = "") -> OwnNumbers:
    """The numbers of one student; the same name gives the same numbers everywhere.

    Args:
        student: a name; capitals and repeated blanks do not matter.
        term: anything that changes from class to class, such as "2027"; with another term come other numbers.

    Raises:
        ConfigError: if the name is empty, or one of the two is not readable text.
    """
    for what, text in (("name", student), ("term", term)):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"the {what} {text!a} is not readable text; write it in UTF-8") from None
    name = " ".join(unicodedata.normalize("NFKC", student).casefold().split())
    if not name:
        raise ConfigError("own numbers are worked out from a name; this one is empty")
    draw = _Draws(f"minikv own numbers\0{term}\0{name}")
    page_size = PAGE_SIZES[draw.below(len(PAGE_SIZES))]
    stale = STALE[draw.below(len(STALE))]
    prefill_pages = stale - draw.below(2)
    pasts = _pasts(prefill_pages, stale + 2)
    pages = pasts[draw.below(len(pasts))]
    room = min(sum(pages), stale + 5) - (stale + 1)
    victims = []
    for who, held in zip(VICTIMS, pages, strict=True):
        answer = 2 + draw.below(8)
        # The last token of an answer is never written: the visit fills its pages to the last slot.
        victims.append(Victim(who, f"{draw.below(10_000):04d}", held * page_size + 1 - answer, answer))
    return OwnNumbers(
        student=name,
        page_size=page_size,
        prefill_pages=prefill_pages,
        decode_pages=stale + 2 + draw.below(room),
        prompt_tokens=stale * page_size + 1 + draw.below(page_size),
        victims=tuple(victims),
    )


@cache
def _pasts(prefill_pages: int, at_least: int) -> list[tuple[int, ...]]:
    """Pages that the victims fill: each fits into the prefill pool, together they fill `at_least` pages."""
    each = range(2, prefill_pages)
    return [pages for pages in product(each, repeat=len(VICTIMS)) if sum(pages) >= at_least]


def counts(numbers: OwnNumbers) -> Counts:
    """The right counts, with a pencil: nothing is run.

    This server lends the page that has been free longest. Pages come back in the order in which they were lent, so
    what is lent next was lent, the last time, exactly one pool ago.
    """
    size = numbers.page_size
    reserved = -(-numbers.prompt_tokens // size)
    lent = [victim.name for victim in numbers.victims for _ in range(_pages(victim, size))]
    one_pool_ago = lent[len(lent) - numbers.decode_pages :]
    return Counts(
        window=(numbers.prefill_pages * size - MARGIN, numbers.decode_pages * size - MARGIN - 1),
        reserved=reserved,
        written=1,
        stale=reserved - 1,
        foreign_slots=numbers.prompt_tokens - 1,
        stale_of=dict(Counter(one_pool_ago[1:reserved])),
    )


def _pages(victim: Victim, page_size: int) -> int:
    return -(-(victim.prompt_tokens + victim.answer_tokens - 1) // page_size)


def own_stage(numbers: OwnNumbers) -> Stage:
    """The historical cluster at these sizes, where the victims have come, been served, and gone.

    The model is random and has one layer: the same doors and the same pages, in a blink, but no words.
    """
    from minikv.config import NodeConfig
    from minikv.course.chapters.ch03 import Allocator
    from minikv.incident.history import HistoricalCluster
    from minikv.incident.scales import Scale, Visit
    from minikv.incident.stage import Stage, build
    from minikv.incident.tenants import Tenant

    visits = [
        [Visit(Tenant(each.name, each.text, (each.code,)), each.text, each.answer_tokens)] for each in numbers.victims
    ]
    scale = Scale(
        name=f"numbers of {numbers.student}",
        model_name="one-layer",
        load=_one_layer,
        page_size=numbers.page_size,
        prefill=NodeConfig(num_pages=numbers.prefill_pages),
        decode=NodeConfig(num_pages=numbers.decode_pages),
        context_length=CONTEXT,
        attack_tokens=numbers.prompt_tokens,
        answer_tokens=ANSWER,
        visits=lambda _model: visits,
        readable=False,
    )
    model = _one_layer()
    stage = Stage(scale, model, build(scale, model, HistoricalCluster, allocator=Allocator))
    stage.play_past()
    return stage


@cache
def _one_layer() -> BoundModel:
    from minikv.incident.scales import one_layer

    return one_layer(CONTEXT)


def main(arguments: Sequence[str] | None = None) -> int:
    """List a class: the numbers of each student and the right counts."""
    parser = argparse.ArgumentParser(
        prog="python -m minikv.course.own", description="Own numbers of each student, and the right counts."
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="a student; quote names with blanks")
    parser.add_argument("--term", default="", help="other numbers for another class or year, such as 2027")
    parser.add_argument("--run", action="store_true", help="also run each server and compare")
    options = parser.parse_args(arguments)
    seen: dict[tuple[int, int], str] = {}
    for name in options.names:
        try:
            numbers = own_numbers(name, options.term)
        except ConfigError as error:
            print(f"own numbers: {error}", file=sys.stderr)
            return 1
        right = counts(numbers)
        print("\n".join(_lines(numbers, right)))
        key = (numbers.page_size, numbers.prompt_tokens)
        if (other := seen.setdefault(key, numbers.student)) != numbers.student:
            print(f"  careful: page size and prompt as for {other}; choose another --term")
        if options.run and not _same(numbers, right):
            return 1
    return 0


def _lines(numbers: OwnNumbers, right: Counts) -> list[str]:
    low, high = right.window
    past = ", ".join(f"{v.name} {v.prompt_tokens} + {v.answer_tokens}, code {v.code}" for v in numbers.victims)
    stale_of = ", ".join(f"{count} of {name}" for name, count in right.stale_of.items())
    return [
        numbers.student,
        f"  server   pages of {numbers.page_size}, prefill {numbers.prefill_pages}, decode {numbers.decode_pages}; "
        f"prompt {numbers.prompt_tokens}",
        f"  past     {past}",
        f"  counts   reserved {right.reserved}, written {right.written}, stale {right.stale} ({stale_of}); "
        f"foreign slots {right.foreign_slots}; window {low} to {high}",
    ]


def _same(numbers: OwnNumbers, right: Counts) -> bool:
    """Run one server, and say whether the counts are those of its books."""
    stage = own_stage(numbers)
    found = stage.measure(stage.attack())
    of_server = (found.pages_reserved, found.pages_written, found.pages_stale, found.stale_slots_read)
    same = of_server == (right.reserved, right.written, right.stale, right.foreign_slots)
    same = same and found.stale_page_writers == right.stale_of
    print(f"  run      {'the same' if same else f'DIFFERENT: {found}'}")
    return same


if __name__ == "__main__":
    sys.exit(main())
