# %% [markdown]
# # 10 The fix: exercises
#
# Read [notebooks/10_the_fix.ipynb](../notebooks/10_the_fix.ipynb) first; it says when to come here. Each check says
# what your code did. `[ ]` is not attempted yet, `[x]` comes with a hint, and a further one if the same thing happens
# again.

# %%
from collections import Counter

from minikv import load_model
from minikv.course import check, learner_or_reference
from minikv.course.chapters.ch10 import (
    ANSWER,
    TEXTS,
    WIRES,
    Parts,
    Stand,
    canaries,
    made,
    share_of_guards,
)

# %% [markdown]
# ## Exercise 10.1: guards of your own
#
# Difficulty 3 of 5 · importance 5 of 5 · 20 minutes · about 13 lines
#
# Done when, with your door and your receiver in place, no scenario leaks, lies or waits for ever. *The idea it tests:*
# a guard stops what passes it; choose guards so that what the one does not see passes the other.
#
# Your door and your receiver are back in the historical server, and *late-write* and *lost-abort* are still open. A
# guard can sit at five places. Each is a method of one class. A method that you leave out does what history did.
#
# | method | when it is called | what it gives back |
# |---|---|---|
# | `pool(own, pools)` | a door is asked; `own` are its node's slots, `pools` those of all, by name | slots it is told |
# | `lend(page)` | the decode node lends a page | a ticket: anything. It goes to whoever may write there |
# | `free(pages, wipe)` | pages came back; `wipe(page)` fills one with zeros | nothing |
# | `write(page, ticket)` | a page comes over the wire, with the ticket of its sender | True lets it in |
# | `status(prefill, decode)` | a leg of the request has ended | what the client is told; None: it waits |
#
# A **leg** is one node's part of a request. The two statuses are numbers such as 200, 400 or 502, or None for a leg of
# which nothing is known yet:
#
# | prefill | decode | what happened |
# |---|---|---|
# | 502 | None | prefill gave up; decode waits for pages that will never come |
# | 400 | 200 | prefill refused, and decode answered all the same |
# | 200 | 502 | prefill was done, and decode had an error |
# | 200 | 200 | all is well |
#
# Write what is needed, and leave the rest as it is. Then say in `why`, in two sentences, which of your guards you would
# ship first, and what it does not stop. The check only looks whether there is something.


# %% tags=["exercise"]
class MyGuards:
    def __init__(self):
        # BEGIN SOLUTION ex-10.1: what you keep, about 1 line
        self.lent = Counter()
        # END SOLUTION

    def pool(self, own, pools):
        """How many slots a door is told."""
        # BEGIN SOLUTION ex-10.1: one truth about capacity, about 1 line
        return min(pools.values())
        # END SOLUTION

    def lend(self, page):
        """A ticket for whoever may write into this page from now on."""
        # BEGIN SOLUTION ex-10.1: a ticket, about 2 lines
        self.lent[page] += 1
        return self.lent[page]
        # END SOLUTION

    def free(self, pages, wipe):
        """Pages came back."""

    def write(self, page, ticket):
        """True if the writer with this ticket may write into this page."""
        # BEGIN SOLUTION ex-10.1: a fence, about 1 line
        return ticket == self.lent[page]
        # END SOLUTION

    def status(self, prefill, decode):
        """What the client is told; None: it waits."""
        # BEGIN SOLUTION ex-10.1: one status of two, about 4 lines
        for status in (prefill, decode):
            if status is not None and status >= 400:
                return status
        return decode
        # END SOLUTION

    def why(self):
        """Two sentences: which guard you would ship first, and what it does not stop."""
        # BEGIN SOLUTION ex-10.1: your two sentences, about 4 lines
        return (
            "I would ship the fence first: an old writer passes every door and every receiver, and nobody notices. "
            "It does not stop a client from waiting for ever, so the worst status comes next."
        )
        # END SOLUTION


# %% tags=["check"]
check("ex-10.1", MyGuards)

# %% [markdown] tags=["solution-only"]
# The ticket is the page's generation, counted by yourself. It need not be a number: a new `object()` for each lending,
# kept in a dict by page, is as good. What matters is that no two holders of a page ever have the same one.
#
# The status is an error as soon as either leg has one, and a success only when both have. Before that, the client
# waits.

# %% [markdown]
# Back to [the lesson](../notebooks/10_the_fix.ipynb): your guards meet all scenarios.

# %% [markdown]
# ## Exercise 10.2: tests in two layers
#
# Difficulty 4 of 5 · importance 5 of 5 · 25 minutes · about 22 lines
#
# Done when seven harmful sets of defects and eight single defects turn red, and the right engine stays green. *The idea
# it tests:* answers show what came through all guards; parts that are asked alone show which guard is missing.
#
# Your score is the number of harmful sets and single defects that turn red. It is **0 if the right engine turns red**:
# a test that cries wolf is switched off.
#
# **Layer one, content.** `start` starts a server on the test stand. You do not see what is wrong with it. Each set is
# tried on a stand of its own, where only one thing can happen: one of the wire's faults, or none.
#
# * `start(prefill=28, decode=64, wire="works")`: the slots of the two pools, and what the wire does. `WIRES` lists what
#   it can do.
# * `server.visit("ada", "ben")`: tenants send their `TEXTS`, are answered, and leave.
# * `server.ask(tokens, stream=False)`: you send so many words about the weather, and `ANSWER` words are asked for. The
#   answer has `.status` (None if none ever came), `.words` and `.text`. With `stream=True` the words are all that you
#   read along, even if an error came in the end.
#
# Here is the usual test. It looks at the status.

# %%
print("wires: ", ", ".join(WIRES))
print("texts: ", TEXTS)
print("answer:", ANSWER, "words")


def usual_test(start):
    server = start()
    server.visit("ada")
    return server.ask(18).status != 200


print("the right engine turns red:", usual_test(Stand(None).start))
print("all eight defects turn red:", usual_test(Stand("abcdefgh").start))

# %% [markdown]
# Not every word of a stranger's text proves something: some of them the tester says, too. `canaries("ada")` are the
# words that only ada can have brought along. You can also work them out yourself.
#
# **Layer two, invariants.** `parts` lets you ask one part alone, and you play its neighbours. Each has a rule. The
# pools have 28 and 256 slots here, and pages have 4. This is what the right engine says:

# %%
parts = Parts()
print("door(18, 8)     ", parts.door(18, 8), "  the door lets in a prompt of 18 with 8 of answer")
print("refuse(18)      ", parts.refuse(18), "  prefill refuses: tokens in its copy, and is it queued?")
print("enter(False)    ", parts.enter(False), "  nobody has refused it yet: is it queued?")
print("room(18, 18)    ", parts.room(18, 18), "  prefill's copy has 18, the door wrote down 18: does it fit?")
print("take(18, 18, 5) ", parts.take(18, 18, 5), "  18 expected, 18 promised, 5 pages came: is it taken?")
print("readable(18, 18)", parts.readable(18, 18), "    18 expected, 18 written: how many may be read?")
print("write(False)    ", parts.write(False), "  a writer to a page that is still its own: is it let in?")
print("status(200, 200)", parts.status(200, 200), "   prefill's leg and decode's: what is the client told?")
print("canaries of ada:", ", ".join(sorted(canaries("ada"))))

# %% [markdown]
# For each of the eight, find a question at which a part that lacks its guard gives itself away. Both methods give True
# for red.


# %% tags=["exercise"]
class Suite:
    def content(self, start):
        """True if a client got what is not its own, or nothing."""
        # BEGIN SOLUTION ex-10.2: every wire, two lengths, read along or not, about 12 lines
        strange = set().union(*(canaries(name) for name in TEXTS))
        for wire in WIRES:
            for tokens, fits in ((18, True), (31, False)):
                for stream in (False, True):
                    server = start(wire=wire)
                    server.visit(*TEXTS)
                    answer = server.ask(tokens, stream)
                    if answer.status is None or strange & set(answer.words):
                        return True
                    if not fits and answer.status == 200:
                        return True
        return False
        # END SOLUTION

    def invariants(self, parts):
        """True if a part breaks a rule."""
        # BEGIN SOLUTION ex-10.2: one question for each part, about 10 lines
        return (
            parts.door(31, 8)
            or parts.refuse(18) != (18, False)
            or parts.enter(refused=True)
            or parts.room(copy=1, recorded=31)
            or parts.take(expected=18, promised=18, pages=4)
            or parts.readable(expected=18, written=4) > 4
            or parts.write(lent_on=True)
            or parts.status(prefill=400, decode=200) == 200
        )
        # END SOLUTION


# %% tags=["check"]
check("ex-10.2", Suite)

# %% [markdown] tags=["solution-only"]
# The content layer needs a past, unequal pools, both sides of a limit, each fault of the wire, streams read to the end,
# and an eye for single words. Leave one out, and one harmful set stays green. The secrets themselves never come out
# whole.
#
# In the second layer every question is one that a right neighbour would never ask. That is why no answer shows these
# defects, and why they have to be asked.

# %% [markdown]
# Back to [the lesson](../notebooks/10_the_fix.ipynb): your tests meet each defect alone.

# %% [markdown]
# ## Exercise 10.3: the smallest sets of guards
#
# Difficulty 2 of 5 · importance 4 of 5 · 10 minutes · about 6 lines
#
# Done when you find every smallest set, and only those. *The idea it tests:* covered means right, or refused, in every
# scenario.
#
# You get the data of `minikv incident --matrix --json`. Here is one of the same form, with invented results and other
# scenarios:

# %%
invented = made({"rain": lambda guards: "refused" if "a" in guards else "leaks", "snow": lambda guards: "right"})
print(invented["scenarios"], "and", len(invented["combinations"]), "rows, such as")
for row in invented["combinations"][:4]:
    print(row)

# %% [markdown]
# `guards` are the letters of the guards that were on. `verdict` is one of `right`, `refused` (loudly and truthfully),
# `wrong` (nonsense, or a status that lies), `leaks`, and `hangs` (no answer, ever).
#
# Give a list of all sets that cover every scenario and that are as small as possible. A set is a text of its letters.


# %% tags=["exercise"]
def smallest_sets(data):
    """The smallest sets of guards with which every scenario ends well, such as ["ab", "cd"]; [] if there is none."""
    # BEGIN SOLUTION ex-10.3: which sets are bad, and which of the others are small, about 5 lines
    rows = data["combinations"]
    open_ones = {row["guards"] for row in rows if row["verdict"] not in ("right", "refused")}
    closed = {row["guards"] for row in rows} - open_ones
    fewest = min((len(guards) for guards in closed), default=0)
    return sorted(guards for guards in closed if len(guards) == fewest)
    # END SOLUTION


# %% tags=["check"]
check("ex-10.3", smallest_sets)

# %% [markdown] tags=["solution-only"]
# One bad row disqualifies a set. What is left is closed, and the size comes last. With eight guards there is no need to
# be clever: 256 sets can all be looked at.

# %% [markdown]
# Back to [the lesson](../notebooks/10_the_fix.ipynb): your program searches the real map.

# %% [markdown]
# ## Stretch: under 1 %
#
# Cover all scenarios, and let ordinary traffic spend **less than 1 % of its time** in your guards, measured in one run:
# 24 requests that nothing is wrong with. (Your door and your receiver are not counted. If your guards wipe, they are.)

# %%
share, calls = share_of_guards(learner_or_reference("ex-10.1"), load_model("tiny-random"))
print(f"{calls} calls of a guard; under 1 % of the time: {share < 0.01}")

# %% [markdown]
# Or invent a **ninth defect**: one that all eight guards let through. Where could it live? Some places to look: what
# lies behind the last token in prefill's pages, and who may write *there*; two requests of one tenant; a generation
# that is counted up to some number and begins anew; a client that is told the truth about somebody else. Write down
# what goes wrong, which guard you would have expected to stop it, and what a ninth guard would have to compare.
