# %% [markdown]
# # 08 Seven stale pages: exercises
#
# Read [notebooks/08_seven_stale_pages.ipynb](../notebooks/08_seven_stale_pages.ipynb) first; it says when to come here.
# Each check says what your code did. `[ ]` is not attempted yet, `[x]` comes with a hint, and a further one if the same
# thing happens again.
#
# Both tenants are invented, and the server is yours.

# %%
from collections import Counter

import torch

from minikv import load_model
from minikv.course import check, learner_or_reference
from minikv.course.chapters.ch08 import DECODE_PAGES, PAGE_SIZE, PREFILL_PAGES, TENANTS, Lab

torch.set_grad_enabled(False)
print("prefill pool:", PREFILL_PAGES * PAGE_SIZE, "tokens;", "decode pool:", f"{DECODE_PAGES * PAGE_SIZE:,} tokens")
print("tokens in the tenants' texts:", TENANTS)

# %% [markdown]
# ## Exercise 8.1: slots read, by writer
#
# Difficulty 3 of 5 · importance 5 of 5 · 15 minutes · about 8 lines
#
# Done when your counts are those of the server's own book, for four attacks. *The idea it
# tests:* count what was read, by who wrote it.
#
# A trace is a list of events. Three lines of one, shortened:
#
# | event | what it holds |
# |---|---|
# | `Admit` | `request=2, tenant="ada", prompt_tokens=20` |
# | `Write` | `node="decode", page=5, owner=2, writer=2, start=0, stop=4` |
# | `Read` | `step=9, node="decode", page=5, owner=6, slots=4, writers=((2, 3), (6, 1))` |
#
# The last line says: for request 6, four slots of page 5 were read in step 9. Request 2 had written three of them, and
# request 6 one. A slot that was never written has the writer -1.
#
# For one request, give back how many slots were read **in its first step on the decode node**, by the tenant that wrote
# them. Call the tenant of writer -1 `"nobody"`. Its own slots count too. A request reads on both nodes, and again in
# each step.

# %%
from minikv.trace import Admit, Read

lab = Lab()
for _ in range(3):
    lab.send("quennell", prompt=382, answer=72)
    lab.run()
lab.attack(490)

events = list(lab.cluster.trace)
attack = events[-1].request
for event in [event for event in events if isinstance(event, Read) and event.owner == attack][:4]:
    print(event)


# %% tags=["exercise"]
def slots_read(events, number):
    """Slots read in the first decode step of request `number`: {tenant: slots}."""
    # BEGIN SOLUTION ex-8.1: slots by the tenant that wrote them, about 8 lines
    names = {event.request: event.tenant for event in events if isinstance(event, Admit)}
    reads = [e for e in events if isinstance(e, Read) and e.node == "decode" and e.owner == number]
    counts = Counter()
    for read in reads:
        if read.step == reads[0].step:
            for writer, slots in read.writers:
                counts[names.get(writer, "nobody")] += slots
    return dict(counts)
    # END SOLUTION


# %% tags=["check"]
check("ex-8.1", slots_read)

# %% [markdown] tags=["solution-only"]
# Three things are easy to miss. The owner of every one of these reads is the attacker, so counting by owner finds
# nothing foreign. Every step reads everything again, so only one step may be counted. And prefill has read something
# for this request as well: the placeholder.

# %% [markdown]
# Back to [the lesson](../notebooks/08_seven_stale_pages.ipynb).

# %% [markdown]
# ## Exercise 8.2: read the stale pages
#
# Difficulty 1 of 5 · importance 4 of 5 · 5 minutes · 1 line
#
# Done when you have the tokens of the seven stale pages, in order, and the model did nothing. *The
# idea it tests:* the words are in the pages.
#
# You get your own `read_page` from exercise 3.3, the pool, the eight pages of the attack in the order of its table, and
# the weights. Which of the eight is not stale?


# %% tags=["exercise"]
def old_tokens(read_page, pool, pages, hf):
    """Token ids that lie in the stale pages, one after the other, in the order of the table."""
    # BEGIN SOLUTION ex-8.2: the seven stale pages, read one by one, about 1 line
    return [token for page in pages[1:] for token in read_page(pool, page, hf)]
    # END SOLUTION


# %% tags=["check"]
check("ex-8.2", old_tokens)

# %% [markdown]
# Back to [the lesson](../notebooks/08_seven_stale_pages.ipynb).

# %% [markdown]
# ## Exercise 8.3: plan the attack
#
# Difficulty 4 of 5 · importance 4 of 5 · 18 minutes · about 6 lines
#
# Done when the seven stale pages are halverson's, and quennell was served too. *The idea it
# tests:* what leaks is decided by who wrote the pages that are lent next.
#
# This is another server. Its decode pool has only 24 pages, and its allocator **lends the page that has been free
# longest**. You direct both tenants, and then you are the attacker:
#
# * `lab.send("halverson", prompt=100, answer=20)`: the tenant sends the first 100 tokens of its text and asks for 20
#   tokens of answer. Nothing runs yet.
# * `lab.run()`: the server works until everybody has an answer and has given the pages back.
# * `lab.attack(200)`: the attack, 200 tokens about the weather. Once.
#
# Halverson's text holds a password. You want seven stale pages, **all of them halverson's**. Quennell has to be served
# as well, before your attack. Each of the two may come at most twice.
#
# Take a pencil. Draw the 24 pages as a line of free pages, and move them.


# %% tags=["exercise"]
def plan(lab):
    """Direct the tenants, then attack once."""
    # BEGIN SOLUTION ex-8.3: who comes when, and how long the attack is, about 6 lines
    lab.send("halverson", prompt=403, answer=64)
    lab.run()
    for _ in range(2):
        lab.send("quennell", prompt=382, answer=72)
        lab.run()
    lab.attack(490)
    # END SOLUTION


# %% tags=["check"]
check("ex-8.3", plan)

# %% [markdown] tags=["solution-only"]
# Halverson's request takes pages 0 to 7, and they go to the end of the line. Quennell's two visits take the other 16.
# Then pages 0 to 7 stand first again. Had the allocator lent the page that came back last, halverson would have to
# come last. 490 tokens need eight pages, and 490 lies in the window of this server, 442 to 1,529.

# %% [markdown] tags=["exercise-only"]
# The check used a model of one layer. Now your plan with the real one. It takes about half a minute. Which words come
# out depends on the lengths that you chose: try some.

# %% tags=["nbval-ignore-output", "answers-prediction", "exercise-only"]
speaking = Lab(load_model("smollm2"))
learner_or_reference("ex-8.3")(speaking)
print(speaking.attacks[0].completion.text)

# %% tags=["exercise-only"]
seen = speaking.attacks[0]
print("stale pages:", Counter(seen.stale).most_common(), "status:", seen.completion.status)

# %% [markdown]
# Back to [the lesson](../notebooks/08_seven_stale_pages.ipynb).

# %% [markdown]
# ## If you want more
#
# The stretch task is at the end of the lesson, since it needs the lesson's server. A way to begin with its second half:
# build a new `Lab(decode_pages=...)` for each length, attack once, and look at `lab.attacks[0].stale`. It is empty when
# nothing leaked.
