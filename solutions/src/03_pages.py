# %% [markdown]
# # 03 Pages: exercises
#
# Read [notebooks/03_pages.ipynb](../notebooks/03_pages.ipynb) first; it says when to come here. Each check says what
# your code did. `[ ]` is not attempted yet, `[x]` comes with a hint, and a further one if the same thing happens again.
# `[ok]` keeps your code in `my_minikv/`, and from then on the course runs on it.

# %%
from collections import deque

import torch

from minikv.course import check, learner_or_reference

# %% [markdown]
# ## Exercise 3.1: pages needed
#
# Difficulty 1 of 5 · importance 3 of 5 · 5 minutes · about 2 lines
#
# Done when every token has a slot, no page is without a token, and you know how many slots
# stay empty. *The idea it tests:* a page is lent whole.
#
# | tokens | page size | pages | empty slots |
# |---|---|---|---|
# | 1 | 64 | 1 | 63 |
# | 64 | 64 | 1 | 0 |
# | 65 | 64 | 2 | 63 |
# | 30 | 16 | 2 | 2 |
#
# Find the rule, and give both numbers back.


# %% tags=["exercise"]
def pages_and_empty(tokens, page_size):
    """Pages that hold `tokens` tokens, and how many of their slots stay empty: `return pages, empty`."""
    # BEGIN SOLUTION ex-3.1: pages and empty slots, about 2 lines
    pages = -(-tokens // page_size)
    return pages, pages * page_size - tokens
    # END SOLUTION


# %% tags=["check"]
check("ex-3.1", pages_and_empty)

# %% [markdown] tags=["solution-only"]
# `//` rounds down. Turned around twice, with a minus before and after, it rounds up. `(tokens + page_size - 1) //
# page_size` does the same. `math.ceil(tokens / page_size)` is right too for every pool that exists; it goes through a
# float, and from 2**53 on floats cannot tell neighbouring whole numbers apart.

# %% [markdown]
# Back to [the lesson](../notebooks/03_pages.ipynb).

# %% [markdown]
# ## Exercise 3.2: an allocator
#
# Difficulty 3 of 5 · importance 5 of 5 · 25 minutes · about 12 lines
#
# Done when every page is free or lent, never both and never neither, and when a larger pool
# is not slower. *The idea it tests:* lending moves a page from one side to the other, or does nothing at all.
#
# * In the beginning all pages, 0 to `num_pages - 1`, are free.
# * `allocate(n)` gives `n` free pages, in a list or another collection. If fewer are free it raises, and lends none.
#   Any exception will do.
# * `free(pages)` takes pages back. It raises for a page that is not lent right now. The pages may come in any order,
#   and from several grants at once.
# * A pool of ten times as many pages must not take ten times as long for each page.
#
# Which free page you lend is up to you. Begin with two questions: *what do I keep?* and *what must I be able to answer
# at once?*


# %% tags=["exercise"]
class Allocator:
    def __init__(self, num_pages):
        # BEGIN SOLUTION ex-3.2: what you keep, about 2 lines
        self.unused = deque(range(num_pages))
        self.lent = set()
        # END SOLUTION

    def allocate(self, n):
        """A collection of `n` free pages, such as a list; raises and lends none if fewer are free."""
        # BEGIN SOLUTION ex-3.2: lend, about 5 lines
        if n > len(self.unused):
            raise MemoryError(f"{n} pages were asked for, {len(self.unused)} are free")
        grant = [self.unused.popleft() for _ in range(n)]
        self.lent.update(grant)
        return grant
        # END SOLUTION

    def free(self, pages):
        """Take pages back; raises for a page that is not lent."""
        # BEGIN SOLUTION ex-3.2: take back, about 3 lines
        for page in pages:
            self.lent.remove(page)
            self.unused.append(page)
        # END SOLUTION


# %% tags=["check"]
check("ex-3.2", Allocator)

# %% [markdown] tags=["solution-only"]
# Two things are kept, since there are two questions. *Which page next?* A deque answers from its end, at once. *Is this
# page out?* A set answers at once, and its `remove` raises by itself for a page that it does not hold, which is why the
# page goes back to the free ones only after that line.
#
# This one lends the page that has been free longest. A plain list with `append` and `pop` lends the one that came back
# last; the engine's own does that, because recently used memory is likely to be in the processor's cache. A heap lends
# the smallest number. All are right. Slow are those that go through a list: `page in some_list`, `some_list.remove`,
# `some_list.pop(0)`, or cutting a slice off.

# %% [markdown]
# Back to [the lesson](../notebooks/03_pages.ipynb).

# %% [markdown]
# ## Exercise 3.3: read a freed page
#
# Difficulty 2 of 5 · importance 5 of 5 · 15 minutes · about 4 lines
#
# Done when every token of a freed page is found. *The idea it tests:* what the numbers of a
# token depend on.
#
# A page was given back. Nobody wiped it. Which tokens are in it? You must not run the model, but you may use its parts:
#
# | part | what it is |
# |---|---|
# | `pool.keys[i]`, `pool.values[i]` | what is stored for layer `i`: pages, slots, heads, numbers |
# | `hf.model.layers[i]` | layer `i`, called `layer` below |
# | `hf.get_input_embeddings().weight` | the embeddings: one row of numbers for each token that there is |
# | `layer.input_layernorm` | the norm that every row passes before it enters a layer |
# | `layer.self_attn.k_proj`, `layer.self_attn.v_proj` | make keys and values from such rows |
# | `torch.cdist(a, b)` | distance of each row of `a` from each row of `b` |
#
# Call a part with many rows and it takes them all at once. What is stored is split into heads, what the parts make is
# not: `.flatten(1)` puts the heads of each slot into one row.


# %% tags=["exercise"]
def read_page(pool, page, hf):
    """The token ids that lie in a page, one for each slot, as a list of ints."""
    # BEGIN SOLUTION ex-3.3: every token's numbers, and the nearest, about 4 lines
    layer = hf.model.layers[0]
    known = layer.self_attn.v_proj(layer.input_layernorm(hf.get_input_embeddings().weight))
    found = pool.values[0][page].flatten(1)
    return torch.cdist(found, known).argmin(dim=1).tolist()
    # END SOLUTION


# %% tags=["check"]
check("ex-3.3", read_page)

# %% [markdown] tags=["solution-only"]
# The second line is a dictionary of the whole language: the value in layer 0 of every token that exists. It can be made
# in advance because such a value depends on the token and on nothing else. Keys of layer 0 depend on the position too,
# and everything deeper depends on the text before. The check used a small model with random weights: this needs no
# training, no guessing and no knowledge of the language.

# %% [markdown]
# Back to [the lesson](../notebooks/03_pages.ipynb): with this function you read Ada's letter.

# %% [markdown]
# ## Stretch: a million pages
#
# One page lent and taken back, in a pool of 1,000 and in one of 1,000,000. Target: a ratio of at most 1.5. The times
# themselves depend on the machine; only their ratio is of interest. If yours is above the target, which line handles
# more than one page?

# %%
from timeit import timeit

Mine = learner_or_reference("ex-3.2")
best = {}
pools = {num_pages: Mine(num_pages) for num_pages in (1_000, 1_000_000)}
for num_pages, pool in pools.items():
    pool.allocate(num_pages // 2)
for _round in range(200):  # in turn, so that a busy machine slows down both
    for num_pages, pool in pools.items():
        seconds = timeit(lambda pool=pool: pool.free(pool.allocate(1)), number=100)
        best[num_pages] = min(seconds, best.get(num_pages, seconds))

ratio = best[1_000_000] / best[1_000]
print("at most 1.5" if ratio <= 1.5 else f"{ratio:.1f} times as slow")
