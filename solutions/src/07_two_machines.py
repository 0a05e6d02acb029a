# %% [markdown]
# # 07 Two machines: exercises
#
# Read [notebooks/07_two_machines.ipynb](../notebooks/07_two_machines.ipynb) first; it says when to come here. Each
# check says what your code did. `[ ]` is not attempted yet, `[x]` comes with a hint, and a further one if the same
# thing happens again. `[ok]` keeps your code in `my_minikv/`, and from then on the course runs on it.

# %%
from dataclasses import replace

from minikv.course import check
from minikv.course.chapters.ch07 import counts_pages, digest_of, forgets, reads_the_promise, sample, storm, tried

# %% [markdown]
# ## Exercise 7.1: receive, complete or nothing
#
# Difficulty 4 of 5 · importance 5 of 5 · 25 minutes · about 14 lines
#
# Done when a complete handoff is taken once, and everything else is refused: nothing read, no page lost. *The idea it
# tests:* expected, promised and received are three numbers, and three parts know them.
#
# Request 7 waits on a decode node. Its pages are reserved. Something comes for it, and `receive(node, 7, handoff)` is
# called. What came may be short, damaged, meant for another request, or here for the second time. The network has said
# *success* each time. Three things can happen:
#
# | what came for the request | it stands in the reserved pages | the client reads | raises | the pages |
# |---|---|---|---|---|
# | all that is expected, undamaged | yes, in their order | the first token | no | stay with the request |
# | anything else, while it waits | no matter | nothing | yes | are given back |
# | anything, after one was taken for it | nothing is written | nothing more | yes | stay as they are: its answer runs |
#
# *Anything else* means also more than is expected: a page or a layer too many. Any exception will do. What you ask for,
# and in which order, is up to you. `trusting` in the lesson shows the half of the work that needs no thought. You have:
#
# | on the node | what it is |
# |---|---|
# | `node.expected[7]` | tokens of the prompt, as the door wrote them down |
# | `node.reserved[7]` | the list of pages lent to the request, in the order of its tokens |
# | `node.page_size` | slots in a page |
# | `node.keys[i]`, `node.values[i]` | the node's memory for layer `i`: pages, slots, heads, numbers |
# | `node.accepted` | a set, empty at first; yours to keep |
# | `node.send(7, token)` | the client reads this token now; nobody can take it back |
# | `node.give_back(7)` | the request is over, and its pages are free |
#
# | in the handoff | what it is |
# |---|---|
# | `handoff.request` | the request that it belongs to |
# | `handoff.num_tokens` | how many tokens the sender promises |
# | `handoff.first_token` | the first token of the answer |
# | `handoff.keys[i]`, `handoff.values[i]` | what came for layer `i`: pages, slots, heads, numbers |
# | `handoff.digest` | from the sender; `digest_of(handoff)` works it out again from what came |
#
# `len(tensor)` is the number of pages in a tensor. `own[[4, 0, 2]] = came` puts three pages into pages 4, 0 and 2.


# %% tags=["exercise"]
def receive(node, request, handoff):
    """Take a handoff for a request that waits, complete or not at all."""
    # BEGIN SOLUTION ex-7.1: take it, or refuse it and leave nothing behind, about 14 lines
    if request in node.accepted:
        raise ValueError(f"request {request} has its handoff already")
    pages = node.reserved[request]
    wanted = [[own[pages].shape for own in side] for side in (node.keys, node.values)]
    if (
        handoff.request != request
        or handoff.num_tokens != node.expected[request]
        or [[part.shape for part in side] for side in (handoff.keys, handoff.values)] != wanted
        or handoff.digest != digest_of(handoff)
    ):
        node.give_back(request)
        raise ValueError(f"what came for request {request} is not complete and intact")
    for own, part in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values], strict=True):
        own[pages] = part
    node.accepted.add(request)
    node.send(request, handoff.first_token)
    # END SOLUTION


# %% tags=["check"]
check("ex-7.1", receive)

# %% [markdown] tags=["solution-only"]
# Everything that can say no comes first, and changes nothing. Then come the three lines that cannot fail. With this
# order there is nothing to undo.
#
# The very first question stands apart. It is the only refusal that does not give pages back, since the request that
# holds them is writing its answer there.
#
# *Expected* comes from the door, *promised* from the sender, and *received* is counted: pages and slots, in every
# layer, for keys and for values apart. The pages alone would not do, since 449 and 512 tokens are both 8 pages of 64.
# The digest covers what no count can see.
#
# Counting the pages is not pedantry. Had one page come for eight, `own[pages] = part` would not have complained: torch
# copies the one page eight times.

# %% [markdown]
# Back to [the lesson](../notebooks/07_two_machines.ipynb): there your receiver stands between two nodes with a real
# model.

# %% [markdown]
# ## Exercise 7.2: deceive three receivers
#
# Difficulty 3 of 5 · importance 4 of 5 · 12 minutes · about 8 lines
#
# Done when each of the three takes something that a right receiver refuses. *The idea it tests:* what a receiver does
# not ask for, somebody will leave out.
#
# Three receivers wait for the handoff of request 7. All of them ask whether it names request 7, and whether
# `digest_of` gives the digest that came with it. Apart from that:
#
# | receiver | it asks for | it keeps a note of what it took |
# |---|---|---|
# | `counts_pages` | as many pages in each layer as are reserved | yes |
# | `reads_the_promise` | as many tokens promised as are expected | yes |
# | `forgets` | both | no |
#
# You are given the honest, complete handoff; the check gives you several, of different sizes. Give three lists back:
# what to deliver to the first, to the second and to the third, each in its order. Do not write into the honest handoff:
# `replace(honest, num_tokens=5)` makes a new one with one field changed. `tried` shows what a receiver says.

# %%
honest = sample()
print(honest)
print("counts_pages:", tried(counts_pages, honest))
print("reads_the_promise:", tried(reads_the_promise, replace(honest, num_tokens=29)))
print("forgets:", tried(forgets, replace(honest, request=9), honest))  # two, one after the other


# %% tags=["exercise"]
def deceive(honest):
    """Three lists of handoffs: for counts_pages, for reads_the_promise, for forgets."""
    # BEGIN SOLUTION ex-7.2: three deceptions, about 8 lines
    few = replace(honest, num_tokens=honest.num_tokens - 1)
    few = replace(few, digest=digest_of(few))
    first_page = [[tensor[:1] for tensor in tensors] for tensors in (honest.keys, honest.values)]
    little = replace(honest, keys=first_page[0], values=first_page[1])
    little = replace(little, digest=digest_of(little))
    return [few], [little], [honest, honest]
    # END SOLUTION


# %% tags=["check"]
check("ex-7.2", deceive)

# %% [markdown] tags=["solution-only"]
# Each deception is honest in everything that its receiver asks for. The page count is right, and a token is missing.
# The promise is right, the digest matches what is there, and 7 pages are missing. All is right, and it has been here
# before.
#
# The digest had to be worked out anew, and you could do it, without any secret. It shows accidents, and it is no
# signature.

# %% [markdown]
# Back to [the lesson](../notebooks/07_two_machines.ipynb): your receiver meets your deceptions.

# %% [markdown]
# ## Stretch: late writers
#
# A client hangs up in the middle of a transfer. Its pages go back and are lent to somebody else. But the network was
# told where to write, and nobody stops it: the rest of the handoff lands in pages that belong to another request by
# now. Your `receive` cannot see it, for it was never asked.
#
# `storm` plays 1,000 random orders of such events and counts. You write what decides *when* pages go back. It is told
# two things about each request: that it is **over** (answered, or the client hung up; both can happen, so you may be
# told twice, at any moment), and that it is **drained** (the network has no more writes under way for it; you are told
# once). `Hasty` gives pages back as soon as a request is over.
#
# Target: 0, 0 and 0. What does each of the three numbers forbid?


# %%
class Hasty:
    def __init__(self, give_back):
        self.give_back = give_back

    def over(self, request):
        self.give_back(request)

    def drained(self, request):
        pass


print(storm(Hasty))
