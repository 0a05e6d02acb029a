# %% [markdown]
# # 09 Root cause: exercises
#
# Read [notebooks/09_root_cause.ipynb](../notebooks/09_root_cause.ipynb) first; it says when to come here. Each check
# says what your code did. `[ ]` is not attempted yet, `[x]` comes with a hint, and a further one if the same thing
# happens again.

# %%
from collections import Counter

from minikv.course import check
from minikv.course.chapters import disagreeing
from minikv.course.chapters.ch09 import laboratory, run_trials
from minikv.trace import Length, Read

# %% [markdown]
# ## Exercise 9.1: a detector of stale reads
#
# Difficulty 3 of 5 · importance 5 of 5 · 25 minutes · about 10 lines
#
# Done when it reports every stale read of six runs, and nothing in 1,000 ordinary requests. *The idea it tests:* the
# owner of a page says nothing about what is in it.
#
# Pages of 4 slots: page 2 is slots 8 to 11. R3 and R7 are requests. What a detector is told, line by line, and what it
# must give back at the end:
#
# | case | it is told, in this order | R7 reads | stale |
# |---|---|---|---|
# | 1 | page 2 lent to R3; R3 wrote 8, 9, 10, 11; page 2 lent to R7; R7 wrote 8, 9 | 8, 9 | none |
# | 2 | page 2 lent to R3; R3 wrote 8, 9, 10, 11; page 2 lent to R7; R7 wrote 8 | 8, 9, 10 | 9, 10 |
# | 3 | page 2 lent to R7, for the first time in its life | 8 | 8 |
# | 4 | page 2 lent to R7; R7 wrote 8, 9; R3 wrote 9 (its old handoff came late) | 8, 9 | 9 |
# | 5 | page 2 lent to R7; R7 wrote 8, 9; page 2 lent to R7 once more (it had given way); R7 wrote 8 | 8, 9 | 9 |
#
# Somebody who reserves pages and reads only what it wrote is never to be suspected, however often the page was used
# before. `wrote` may say `writer=-1`: something is in the slot, and nobody knows whose it is. Each node has a detector
# of its own. A slot that is read again is asked about again.


# %% tags=["exercise"]
class Detector:
    """Beside the pages of one node: slots are numbered from 0, page p holds p * page_size and the ones behind it."""

    def __init__(self, num_pages, page_size):
        # BEGIN SOLUTION ex-9.1: what you want to remember, about 2 lines
        self.page_size = page_size
        self.writer = [-1] * (num_pages * page_size)
        # END SOLUTION

    def lent(self, page, generation, owner):
        """A page was lent to request `owner`, for the `generation`-th time."""
        # BEGIN SOLUTION ex-9.1: what changes when a page is lent, about 2 lines
        first = page * self.page_size
        self.writer[first : first + self.page_size] = [-1] * self.page_size
        # END SOLUTION

    def wrote(self, slots, writer):
        """Request `writer` has put something into these slots (a list of slot numbers)."""
        # BEGIN SOLUTION ex-9.1: what changes when slots are written, about 2 lines
        for slot in slots:
            self.writer[slot] = writer
        # END SOLUTION

    def reads(self, slots, reader):
        """Request `reader` is about to read these slots. Give back those that are stale."""
        # BEGIN SOLUTION ex-9.1: the stale ones among them, about 1 line
        return [slot for slot in slots if self.writer[slot] != reader]
        # END SOLUTION


# %% tags=["check"]
check("ex-9.1", Detector)

# %% [markdown] tags=["solution-only"]
# One number for each slot is enough: who filled it since its page was lent. Lending a page clears its row, so the
# generation is never needed as a number. Another way keeps the generation beside the writer and compares both; it is
# what minikv's ledger does, since it must also tell whose the old contents were.

# %% [markdown]
# Back to [the lesson](../notebooks/09_root_cause.ipynb): it puts your detector beside the pages of the real server.

# %% [markdown]
# ## Exercise 9.2: the first disagreement
#
# Difficulty 4 of 5 · importance 5 of 5 · 18 minutes · about 12 lines
#
# Done when it finds the right event in five runs that go wrong, and none in three that do not. *The idea it tests:*
# the cause is where two parts first disagree, long before anybody suffers.
#
# You get the events of a run, in the order of time. Two kinds of them tell how long a part took a request to be:
#
# | event | what it says |
# |---|---|
# | `Length` | `request`, `part`, `tokens`: this part took the request's prompt to be so long |
# | `Read` | `step`, `node`, `owner`, `slots`: so many slots **of one page** were read for request `owner` |
#
# You need no other field. Attention notes no `Length`. What it took for the length shows in the request's **first step
# on the decode node**: there it reads the prompt and the first token of the answer. Later steps read more, since the
# answer grows. And on the prefill node a long prompt is read in chunks.
#
# Give back the first event, in the order of the list, that shows a request in another length than an earlier event did.
# If that is a read of attention, any `Read` of that step will do. Give back `None` if all agree.
#
# Here is a row to look at, from a small server: a prompt of 31 tokens, of which prefill holds 28 at most.

# %%
run = disagreeing.incident()
for event in run.events:
    if isinstance(event, Length) and event.request == run.request:
        print(event)
reads = [event for event in run.events if isinstance(event, Read) and event.owner == run.request]
print(len(reads), "reads; the first on the decode node:")
print(next(event for event in reads if event.node == "decode"))


# %% tags=["exercise"]
def first_disagreement(events):
    """The first event that shows a request in another length than an earlier one did; None if all agree."""
    # BEGIN SOLUTION ex-9.2: where a request first has another length, about 12 lines
    read, first, believed = Counter(), {}, {}
    for event in events:
        if isinstance(event, Read) and event.node == "decode":
            read[event.owner, event.step] += event.slots
    for event in events:
        if isinstance(event, Length):
            request, tokens = event.request, event.tokens
        elif isinstance(event, Read) and event.node == "decode":
            request = event.owner
            if event.step != first.setdefault(request, event.step):
                continue
            tokens = read[request, event.step] - 1
        else:
            continue
        if believed.setdefault(request, tokens) != tokens:
            return event
    return None
    # END SOLUTION


# %% tags=["check"]
check("ex-9.2", first_disagreement)

# %% [markdown] tags=["solution-only"]
# `setdefault` keeps the first length that anybody held for a request, and gives it back ever after. In the incident the
# answer is the queue, and the reads are not needed. They are in the run in which a page was lost: there every part says
# 18, and attention reads less.

# %% [markdown]
# Back to [the lesson](../notebooks/09_root_cause.ipynb).

# %% [markdown]
# ## Exercise 9.3: three hypotheses
#
# Difficulty 2 of 5 · importance 4 of 5 · 12 minutes · about 6 lines
#
# Done when each of your three expectations could have failed, and one of them is that nothing changes. *The idea it
# tests:* an expectation that could not fail is no test.
#
# A small server plays the incident with one thing changed at a time: pages of 4 slots, a prefill pool of 28, a request
# of 31 tokens. What can be changed, and what is seen:

# %%
laboratory()

# %% [markdown]
# Write three trials. Each has a **sentence** (what you believe), **one** change by its name, and what you **expect** to
# see: values for one or more of the lines above, such as `{"status": 400, "reserved": 0}`. A list means *one of these*.
#
# Nobody asks whether you are right. What counts is that you could have been wrong, and that one of your three changes
# must do nothing. Write all three before you run the check.

# %% tags=["exercise"]
# BEGIN SOLUTION ex-9.3: three trials: (sentence, change, expectation), about 6 lines
my_trials = [
    ("Nobody reserves anything if both pools are small.", "equal pools", {"status": 400, "reserved": 0}),
    ("Zeros are nobody's words, so wiping ends the stale reads.", "wiped", {"stale slots": 0}),
    ("Nobody on the decode node reads the question.", "other question", {"stale slots": 30, "answer": "same"}),
]
# END SOLUTION

# %% tags=["check"]
check("ex-9.3", my_trials)

# %% [markdown]
# Now look: what did you expect, and what was seen?

# %%
run_trials(my_trials)

# %% [markdown] tags=["solution-only"]
# The second expectation is wrong, and worth the most. Wiping changes what lies in the slots, and not who reads how
# much: 30 slots are still read that the request never wrote. The third says something odd: the question itself never
# reaches the decode node, only its length does.

# %% [markdown]
# Back to [the lesson](../notebooks/09_root_cause.ipynb).

# %% [markdown]
# ## If you want more
#
# *Stretch, 30 minutes.* Two weeks after the incident somebody asks: how many requests were affected? The answers are
# gone. What is left is a log. `busy_log()` lets a server with this fault run, and gives back its
# 10,000 `lines`. The requests that really were affected are in `log.affected`, from the server's own book; you may
# compare in the end.
#
# What can a log show of this fault? Not the words, and not the status: that was 200. But somebody sent **one** page
# where **many** were reserved, and one line of the log says both numbers.
#
# Careful: not every line that looks like it is one of those. Some requests are short. Some clients leave before there
# is an answer. Some transfers are sent twice. And a page more or less is harmless here. Target: **every affected
# request, and no other.**

# %%
from minikv.incident.logs import busy_log


def affected(lines):
    """Numbers (`rid`) of the requests whose answer was made from slots that others had written, as a set."""
    return ...


if affected([]) is ...:
    print("[ ] not attempted yet: begin with busy_log().lines[:40]")
else:
    log = busy_log()
    found = affected(log.lines)
    print(f"{len(log.lines):,} lines; you found {len(found)} requests")
    print("missed:", len(log.affected - found), "false alarms:", len(found - log.affected))

# %% [markdown] tags=["solution-only"]
# One way is `affected_in` in `minikv/incident/logs.py`. It notes who was sent one page of more than two, and who was
# answered with status 200, and takes those who are in both. A count of lines is not a count of requests: some transfers
# have two lines.
