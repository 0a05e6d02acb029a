# %% [markdown]
# # 04 Reading through a page table: exercises
#
# Read [notebooks/04_reading_through_a_page_table.ipynb](../notebooks/04_reading_through_a_page_table.ipynb) first; it
# says when to come here. Each check says what your code did. `[ ]` is not attempted yet, `[x]` comes with a hint, and a
# further one if the same thing happens again. `[ok]` keeps your code in `my_minikv/`, and from then on the course runs
# on it.

# %%
import torch

from minikv.course import check, learner_or_reference

# %% [markdown]
# ## Exercise 4.1: slot mapping
#
# Difficulty 1 of 5 · importance 4 of 5 · 8 minutes · about 3 lines
#
# Done when every token has its slot, wherever a page begins or ends. *The idea it tests:* a token's place is found in
# two looks.
#
# A request has a page table. Some of its tokens, from `start` up to but not including `stop`, want their slots. Slots
# are counted through the whole pool: with 4 slots in a page, page 0 has the slots 0 to 3, page 1 has 4 to 7, and so on.
#
# | table | page size | start | stop | slots |
# |---|---|---|---|---|
# | 7, 2, 5 | 4 | 0 | 4 | 28, 29, 30, 31 |
# | 7, 2, 5 | 4 | 4 | 6 | 8, 9 |
# | 7, 2, 5 | 4 | 3 | 5 | 31, 8 |
# | 7, 2, 5 | 4 | 6 | 11 | 10, 11, 20, 21, 22 |
# | 9, 4 | 16 | 16 | 18 | 64, 65 |
#
# Find the rule.


# %% tags=["exercise"]
def slot_mapping(table, start, stop, page_size):
    """The slots of the tokens start to stop - 1, in their order, as a list of ints."""
    # BEGIN SOLUTION ex-4.1: a slot for each token, about 3 lines
    slots = []
    for token in range(start, stop):
        place, inside = divmod(token, page_size)
        slots.append(table[place] * page_size + inside)
    return slots
    # END SOLUTION


# %% tags=["check"]
check("ex-4.1", slot_mapping)

# %% [markdown] tags=["solution-only"]
# First look: `divmod` says how many whole pages of tokens come before, and so the place in the table. Second look: what
# stands there is the page, and so many whole pages of slots come before it in the pool. The two divisions by the page
# size look alike and mean different things.

# %% [markdown]
# Back to [the lesson](../notebooks/04_reading_through_a_page_table.ipynb).

# %% [markdown]
# ## Exercise 4.2: gather, then attend
#
# Difficulty 3 of 5 · importance 5 of 5 · 22 minutes · about 7 lines
#
# Done when the numbers are right, and nothing that nobody wrote for this request can change them. *The idea it tests:*
# reserved is not written.
#
# One token asks. It has as many queries as there are query heads. Its own key and value are in the pool already.
#
# | argument | what it is |
# |---|---|
# | `query` | `[query heads, width]`; SmolLM2: 9 heads, 64 numbers |
# | `keys`, `values` | one layer of the whole pool, `[pages, page size, KV heads, width]`; SmolLM2: 3 KV heads |
# | `table` | the request's pages, a list of ints; some may be reserved and still empty |
# | `written` | how many of its tokens are written, the one that asks included |
# | `scale` | the factor on the scores |
#
# Give back `[query heads, width]`: one row for each query head (a list of rows will do). Neighbours share a KV head:
#
# ```
# query head   0  1  2    3  4  5    6  7  8
# KV head         0          1          2
# ```
#
# With 4 query heads and 2 KV heads it would be 0, 1 and 2, 3. Other models have other numbers, so take them from the
# shapes. The pool belongs to everybody: read it, and do not change it.
#
# You may use this, the attention of one head over tokens in a row, and your slot mapping (if you left out 4.1, begin
# with `slot_mapping = learner_or_reference("ex-4.1")`). `keys.flatten(0, 1)` counts the slots of the pool through:
# `[pages * page size, KV heads, width]`, and a list of slots picks some of them. Here is a pool small enough to print.

# %%
toy = torch.arange(18).reshape(3, 2, 3, 1)  # 3 pages of 2 slots, 3 KV heads, and one number for each
picked = toy.flatten(0, 1)[[4, 5, 0, 1]]  # four tokens, in pages 2 and 0
print("the pool:", list(toy.shape), "and four tokens:", list(picked.shape))
print("a row for each token, a column for each KV head:")
print(picked[..., 0])


# %% [markdown]
# One head wants one column: all tokens, one KV head.


# %%
def one_head(query, keys, values, scale):
    """query [width], keys and values [tokens, width]; gives [width]."""
    weights = torch.softmax(keys @ query * scale, dim=0)
    return weights @ values


# %% tags=["exercise"]
def attend(query, keys, values, table, written, scale):
    """Attention for one token through a page table; gives [query heads, width]."""
    # BEGIN SOLUTION ex-4.2: gather the written tokens, then each head, about 7 lines
    slots = slot_mapping(table, 0, written, keys.shape[1])
    key, value = keys.flatten(0, 1)[slots], values.flatten(0, 1)[slots]
    group = query.shape[0] // keys.shape[2]
    rows = []
    for head in range(query.shape[0]):
        rows.append(one_head(query[head], key[:, head // group], value[:, head // group], scale))
    return torch.stack(rows)
    # END SOLUTION


# %% tags=["check"]
check("ex-4.2", attend)

# %% [markdown] tags=["solution-only"]
# The list of slots has `written` entries, so nothing else is ever touched. That is the safest way to be right: what is
# not read need not be hidden.
#
# Without a loop over heads: `key.repeat_interleave(group, dim=1)` makes a copy of each KV head for each of its query
# heads. (`repeat` puts the copies in another order: 0, 1, 2, 0, 1, 2, ...) Or the other way round,
# `query.view(kv_heads, group, width)`, which copies nothing: then each KV head meets its queries in one matrix product.

# %% [markdown]
# ### Once more: break it
#
# 3 minutes, 1 line. You have it right. Now make the mistake on purpose, and see what a check can say about it: a
# function that reads all slots of all pages in the table. Ask your `attend`, and lie to it about one argument.


# %% tags=["exercise"]
def attend_too_far(query, keys, values, table, written, scale):
    """Reads everything that is reserved."""
    # BEGIN SOLUTION ex-4.2: ask attend, and lie about one argument, about 1 line
    return attend(query, keys, values, table, len(table) * keys.shape[1], scale)
    # END SOLUTION


# %%
check("ex-4.2", attend_too_far)

# %% [markdown]
# Your right one stays in `my_minikv/`. Back to [the lesson](../notebooks/04_reading_through_a_page_table.ipynb): there
# this function speaks.

# %% [markdown]
# ## Exercise 4.3: page by page
#
# Difficulty 5 of 5 · importance 3 of 5 · 40 minutes · about 14 lines
#
# Done when the numbers are those of 4.2, and no more than about a page is ever copied. *The idea it tests:* which few
# numbers stand for all the tokens seen so far.
#
# The arguments and the result are those of 4.2. Go through the pages in a loop, and use up each where it lies:
# `keys[page, :n]` is a view of the first `n` slots of a page and copies nothing.
#
# Have the worked example of the lesson before you, and answer on paper first:
#
# * What do you carry from page to page, and of which shape is it, with 9 query heads of 64 numbers?
# * With what do you begin, before the first page?
# * What happens to it when a page brings a larger score? When it does not?
# * How many tokens of a page are yours?
#
# You may go head by head, or do all heads at once.
#
# A way in: forget pools and heads, and take pages A, B and C of the lesson. With exp in place of powers of 2 they give
# the three answers below. Write a loop that sees one page at a time and gets the same three. Then put it inside.

# %%
abc = [([3.0, 1.0], [10.0, 20.0]), ([4.0, 2.0], [30.0, 60.0]), ([5.0], [12.5])]  # scores and values of each page

for count in (1, 2, 3):
    scores = torch.tensor([score for page in abc[:count] for score in page[0]])
    numbers = torch.tensor([number for page in abc[:count] for number in page[1]])
    print(f"after page {'ABC'[count - 1]}: {(torch.softmax(scores, dim=0) @ numbers).item():.2f}")


# %% tags=["exercise"]
def attend_by_page(query, keys, values, table, written, scale):
    """The same as attend, page after page, without a copy of all keys and values."""
    # BEGIN SOLUTION ex-4.3: page after page, about 14 lines
    page_size, kv_heads = keys.shape[1:3]
    query = query.reshape(kv_heads, -1, query.shape[1])  # KV heads, query heads of each, width
    largest, weight, mixed = torch.tensor(float("-inf")), torch.tensor(0.0), torch.tensor(0.0)
    for first in range(0, written, page_size):
        page, filled = table[first // page_size], min(page_size, written - first)
        key, value = keys[page, :filled].transpose(0, 1), values[page, :filled].transpose(0, 1)
        scores = query @ key.transpose(1, 2) * scale  # KV heads, query heads of each, tokens
        before, largest = largest, torch.maximum(largest, scores.amax(dim=2, keepdim=True))
        shrink = torch.exp(before - largest)
        fresh = torch.exp(scores - largest)
        weight = weight * shrink + fresh.sum(dim=2, keepdim=True)
        mixed = mixed * shrink + fresh @ value
    return (mixed / weight).flatten(0, 1)
    # END SOLUTION


# %% tags=["check"]
check("ex-4.3", attend_by_page)

# %% [markdown] tags=["solution-only"]
# Three things are carried on: the largest score so far, the weight, and the weighted sum, each for every query head. It
# begins with -infinity, 0 and 0. On the first page `shrink` is exp(-infinity), which is 0: nothing was there, and
# nothing of it stays. When a page brings no larger score, `shrink` is exp(0), which is 1: what was kept stays as it is.
#
# Another right way: keep the three things of *each page*, and merge them all at the end. Engines do that when a request
# is so long that several processors share its pages.

# %% [markdown]
# Back to [the lesson](../notebooks/04_reading_through_a_page_table.ipynb).

# %% [markdown]
# ## Stretch: read each byte once
#
# How many bytes of keys and values does a function read, for each byte that is written for the request? A copy that is
# made and then read counts once more, and so does a key that is looked at twice. Target for 4.3: at most 1.05 for each
# number of tokens. Only operations of torch are seen.
#
# If yours is above: which line makes a copy? Which one reads slots and throws them away?

# %%
from minikv.course.chapters.ch04 import bytes_read, bytes_written, made_up

for exercise in ("ex-4.2", "ex-4.3"):
    function = learner_or_reference(exercise)
    ratios = []
    for written in (1, 16, 37, 500):
        call = made_up(kv_heads=3, group=3, width=64, page_size=16, written=written)
        ratios.append(bytes_read(function, call) / bytes_written(call))
    worst = max(ratios)
    print(f"{exercise}: at most {worst:.2f} bytes for each byte written", "(target met)" if worst <= 1.05 else "")
