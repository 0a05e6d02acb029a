"""Exercise 8.3, plan the attack: the reference answer, and what is said of others."""

from __future__ import annotations

from collections import Counter
from typing import Any

from minikv.course.chapters.lab import TENANTS, Attack, Lab
from minikv.course.declare import Verdict, ok, wrong


def plan(lab: Lab) -> None:
    """Halverson's pages, and nobody else's, are what the attack gets."""
    lab.send("halverson", prompt=403, answer=64)
    lab.run()
    for _ in range(2):
        lab.send("quennell", prompt=382, answer=72)
        lab.run()
    lab.attack(490)


_NEXT_PAGE = (
    "Which page is lent next? Look at the allocator of this server.",
    "It lends the page that has been free longest. Freed pages go to the end of the line, and the line is as long as "
    "the pool.",
    "Draw a pool of 3 places in a line, for 3 groups of 8 pages. Move a group to the end each time it is freed. Who "
    "stands first when the attack comes?",
)
_IN_THE_WINDOW = (
    "Between which lengths do the two nodes disagree here?",
    "Each node puts its own pool into the rule. The prefill pool holds 448 tokens, this decode pool 1,536.",
    "Write the two limits on a line. Mark where both serve, where both refuse, and what is between.",
)
_EIGHT_PAGES = (
    "How many pages does a prompt of this length reserve, and how many of them does the handoff fill?",
    "Seven stale pages and one written make eight. Which lengths need exactly eight pages of 64?",
    "How many pages for 448 tokens, for 449, for 512, for 513?",
)


MOST_VISITS = 2  # of each tenant: with three, halverson fills all 24 pages, and nothing need be planned


def judge_plan(thing: Any) -> Verdict:
    lab = Lab()
    thing(lab)
    if not lab.attacks:
        return wrong("no-attack", "the plan ended without an attack.", "Which call sends the attack?")
    if len(lab.attacks) > 1:
        said = f"the plan attacked {len(lab.attacks)} times. The first attack has written over what the next one reads."
        return wrong("two-attacks", said, "Can you work out the length before you send anything?")
    found = lab.attacks[0]
    seen = set(found.came)
    if found.completion.status != 200:
        status = found.completion.status
        said = f"{found.tokens} tokens: both nodes refused, and the client got {status}. Nothing leaked."
        return wrong("both-refused", said, *_IN_THE_WINDOW)
    if found.commit is None or not found.stale:
        said = f"{found.tokens} tokens: served, and correctly. That is an answer, not a leak."
        return wrong("served", said, *_IN_THE_WINDOW)
    if not seen & set(TENANTS):
        said = f"{len(found.stale)} stale pages, and all of them hold zeros. Nobody was here before."
        return wrong("no-past", said, "What did p-8.3 say about a fresh start?", "A leak needs a past. Who makes it?")
    if found.stale == (("halverson",),) * 7:
        if "quennell" not in seen:
            if "quennell" in lab.names.values():
                said = "halverson's pages it is, but quennell came only after the attack."
                return wrong("too-late", said, "Both are served before the attack. When may quennell come?")
            said = "halverson's pages it is, but quennell never came: nobody could be taken for anybody."
            return wrong("no-a", said, "Both tenants are served in this exercise. When may quennell come?")
        most, who = max((found.came.count(name), name) for name in TENANTS)
        if most > MOST_VISITS:
            said = (
                f"{who} came {most} times. Each tenant may come at most {MOST_VISITS} times: the line can be planned."
            )
            return wrong("flooded", said, *_NEXT_PAGE)
        also = found.foreign.get("quennell", 0)
        page_0 = f" The {also} of quennell lie in the first page: they came with the handoff, out of a page of prefill."
        return ok(
            f"All seven stale pages are halverson's, and {found.foreign['halverson']} of the slots that were read."
            f"{page_0 if also else ''} Now let the real model speak."
        )
    return _why_not(lab, found)


def _why_not(lab: Lab, found: Attack) -> Verdict:
    """The attack read foreign slots, but not those that were wanted."""
    whose = _counted(Counter(" and ".join(names) for names in found.stale))
    if found.running:
        who = " and ".join(found.running)
        said = f"when the attack came, {who} still ran. Pages of theirs were not free. You got {whose}."
        return wrong(
            "running",
            said,
            "When does a request give its pages back?",
            "Pages come back with the last token of the answer. Somebody has to let the server run until then.",
            "Go through your plan line by line. Which pages are free after each line?",
        )
    if len(found.stale) != 7:
        pages = found.commit.pages_reserved if found.commit else 0
        said = f"{found.tokens} tokens reserve {pages} pages, and {len(found.stale)} of them are stale. Wanted: seven."
        return wrong("not-seven", said, *_EIGHT_PAGES)
    if "halverson" not in lab.names.values():
        return wrong("no-b", f"stale pages: {whose}. Halverson never came.", "Whose secret is wanted?")
    if lab.pages_left["halverson"] < 7:
        left = lab.pages_left["halverson"]
        said = f"halverson never held more than {left} pages, and seven are wanted. Stale pages: {whose}."
        return wrong(
            "too-short",
            said,
            "How many slots does a request fill, with its prompt and its answer?",
            "The last token of an answer is never written. The rest is: prompt plus answer, less one.",
            "Pages of 4, prompt of 6, answer of 3. Which slots are filled, in how many pages?",
        )
    if found.stale[:6] == (("halverson",),) * 6 and "halverson" in found.stale[6]:
        return wrong(
            "last-page",
            f"stale pages: {whose}. The last one is not halverson's alone.",
            "How many slots of its last page does that visit fill?",
            "A visit fills prompt plus answer, less one. Where it stops, the slots of an earlier visit are left.",
            "Pages of 4, 6 slots filled. Which slots of the second page still hold what was there before?",
        )
    return wrong("order", f"stale pages: {whose}. Seven of halverson are wanted.", *_NEXT_PAGE)


def _counted(names: Counter[str]) -> str:
    ranked = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {'never written' if name == 'nobody' else 'of ' + name}" for name, count in ranked)
