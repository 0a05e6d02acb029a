# %% [markdown]
# # 01 What is a KV cache? Exercises
#
# Read [notebooks/01_what_is_a_kv_cache.ipynb](../notebooks/01_what_is_a_kv_cache.ipynb) first; it says when to come
# here. Each check says what your code did. `[ ]` is not attempted yet, `[x]` comes with a hint, and a further one if
# the same thing happens again. `[ok]` keeps your code in `my_minikv/`, and from then on the course runs on it.

# %%
import torch

from minikv.course import check
from minikv.course.chapters.looking import only_new, watching

# %% [markdown]
# ## Exercise 1.1: the greedy loop
#
# Difficulty 1 of 5 · importance 4 of 5 · 8 minutes · about 5 lines
#
# Done when your ids are those with the best score, round by round. *The idea it tests:* what a model knows in each
# round.
#
# You are given
#
# | | |
# |---|---|
# | `scores` | `scores(ids)` runs the model; gives a tensor, a row for each position, in it a score for each token |
# | `ids` | the prompt, a list of ids |
# | `n` | how many tokens you want |
#
# Give back the `n` new ids, as a list, without the prompt. The id of a token is its place in a row of scores, counted
# from 0. For a tensor of one axis, `.argmax()` gives the place of the largest, and `int(...)` makes a plain number
# of it.
#
# (If you know transformers: without a cache here. That is the stretch.)


# %% tags=["exercise"]
def greedy(scores, ids, n):
    """The `n` ids that follow `ids`, each time the one with the best score."""
    # BEGIN SOLUTION ex-1.1: round and round, about 5 lines
    text = list(ids)
    for _ in range(n):
        best = scores(text)[-1].argmax()
        text.append(int(best))
    return text[len(ids) :]
    # END SOLUTION


# %% tags=["check"]
check("ex-1.1", greedy)

# %% [markdown] tags=["solution-only"]
# The last row is the guess about what follows the whole text. `list(ids)` makes a list of our own, so that the caller's
# prompt stays as it is. And in every round the *whole* text goes into the model: it remembers nothing from the round
# before. That is the waste that this chapter is about.

# %% [markdown]
# Back to [the lesson](../notebooks/01_what_is_a_kv_cache.ipynb).

# %% [markdown]
# ## Exercise 1.2: what changes
#
# Difficulty 2 of 5 · importance 5 of 5 · 12 minutes · about 6 lines
#
# Done when for every layer you name exactly the old positions that changed, wherever the token is put in. *The idea it
# tests:* who can see whom.
#
# In the lesson a token was appended. Now it may be put in anywhere. You are given
#
# | | |
# |---|---|
# | `look` | `look(ids)` gives a list with one tensor for each layer; the first axis of each counts positions |
# | `ids` | the text, a list of ids |
# | `extra` | the id of one more token |
# | `where` | the position at which it shall stand: 0 is in front of everything, `len(ids)` is at the end |
#
# Give back a list with one entry for each layer: a list of the old tokens that changed. Name each of them by the
# position that it had in the old text. A token has changed in a layer if any of its numbers differs by more than
# 0.0001.
#
# You need not know what is in the tensors: whatever comes after the first axis belongs to that position. So
# `tensor[3]` is all that there is at position 3, and `(a - b).abs().max()` is the largest difference between two of
# these.


# %% tags=["exercise"]
def changed(look, ids, extra, where):
    """For each layer a list: the old positions that change when `extra` is put in at `where`."""
    # BEGIN SOLUTION ex-1.2: look twice and compare, about 6 lines
    longer = [*ids[:where], extra, *ids[where:]]
    result = []
    for old, new in zip(look(ids), look(longer), strict=True):
        same_tokens = torch.cat([new[:where], new[where + 1 :]])
        largest = (same_tokens - old).abs().flatten(1).amax(dim=1)
        result.append([position for position in range(len(ids)) if largest[position] > 0.0001])
    return result
    # END SOLUTION


# %% tags=["check"]
check("ex-1.2", changed)

# %% [markdown] tags=["solution-only"]
# Taking the new token's row out of the longer text leaves the old tokens in their old order. So position 5 is compared
# with the token that *was* at position 5, wherever it stands now. `flatten(1)` puts everything that belongs to one
# position into one row, and `amax` takes the largest difference of that row. A sum would not do, since differences
# up and down would cancel.

# %% [markdown]
# Back to [the lesson](../notebooks/01_what_is_a_kv_cache.ipynb).

# %% [markdown]
# ## Exercise 1.3: attention of one new token
#
# Difficulty 3 of 5 · importance 5 of 5 · 15 minutes · about 4 lines
#
# Done when your weights and your result are those of the model's own layers. *The idea it tests:* what a new token
# needs of the others.
#
# One head of one layer. You are given the three rows of the new token, and what is kept of those before it:
#
# | | shape |
# |---|---|
# | `query`, `own_key`, `own_value` | `[width]` |
# | `old_keys`, `old_values` | `[old tokens, width]` |
#
# `width` is 64 in SmolLM2, but your function should work for any. Give back `weights`, one for each position of the
# text in their order, and `result`, one row of `width` numbers.
#
# You know the three moves from the lesson: scores, weights, result. How exactly, these examples show.
#
# **Scores.** Here are a query, a key, and the score of that position before the softmax. First two of width 1, where
# there is little to see, and then wider ones. What is done to the numbers, and what does the width do?
#
# | width | query | key | score |
# |---|---|---|---|
# | 1 | (2) | (3) | 6 |
# | 1 | (-1) | (4) | -4 |
# | 4 | (1, 2, 0, 1) | (3, 1, 5, 1) | 3 |
# | 4 | (1, 1, 1, 1) | (2, 2, 2, 2) | 4 |
# | 16 | all 1 | all 2 | 8 |
# | 64 | all 1 | all 2 | 16 |
#
# **Weights.** The softmax of the lesson, by hand or with `torch.softmax`.
#
# **Result.**
#
# | weights | values | result |
# |---|---|---|
# | 0.5, 0.5 | (4, 0), (0, 8) | (2, 4) |
# | 0.25, 0.75 | (4, 0), (0, 8) | (1, 6) |
#
# Some tools, if you want them: `a @ b` of two rows multiplies number by number and adds up. With a matrix, `matrix @
# row` does so for each row of the matrix, and `row @ matrix` adds up the rows of the matrix, each times its number in
# `row`. `torch.vstack([a, b])` puts rows below each other. Loops are just as good.


# %% tags=["exercise"]
def attend(query, own_key, own_value, old_keys, old_values):
    """What the new token takes from each position, and what it gets: `return weights, result`."""
    # BEGIN SOLUTION ex-1.3: scores, weights, result, about 4 lines
    keys = torch.vstack([old_keys, own_key])
    values = torch.vstack([old_values, own_value])
    weights = torch.softmax(keys @ query / len(query) ** 0.5, dim=0)
    return weights, weights @ values
    # END SOLUTION


# %% tags=["check"]
check("ex-1.3", attend)

# %% [markdown] tags=["solution-only"]
# A sum of 4 products is divided by 2, one of 16 by 4, one of 64 by 8: by the square root of the width. Sums of many
# products come out large, and then the softmax gives everything to one position, as you saw in the lesson with 10, 20
# and 30. The division keeps that from happening only because a key is wide.
#
# The new token is one of those it looks at, so its own key and value come in as well. And the order of the rows does
# not matter to the result, as long as weights and values have the same one: it is a sum.

# %% [markdown]
# Back to [the lesson](../notebooks/01_what_is_a_kv_cache.ipynb), where your function runs in a real layer.

# %% [markdown]
# ## Stretch: a cache of your own
#
# Generate with a cache. Target: for a prompt of 200 tokens and 20 new ones at most 219 rows, and the same tokens as
# transformers.
#
# `more(ids, kept)` sends only `ids` through the model. `kept` holds the keys and values of everything before them; it
# is `None` if there is nothing before. You get two things back: scores, one row for each of `ids`, and a new `kept`
# with `ids` in it. What must go in, in the first round and in the others? There is no check here: the cell below
# your function counts.


# %% tags=["exercise"]
def with_cache(more, ids, n):
    """The `n` ids that follow `ids`, with as few rows as possible."""
    # BEGIN SOLUTION ex-1.1: the stretch, the loop with a cache, about 6 lines
    new, kept, unseen = [], None, list(ids)
    while len(new) < n:
        rows, kept = more(unseen, kept)
        unseen = [int(rows[-1].argmax())]
        new += unseen
    return new
    # END SOLUTION


# %% [markdown]
# The counter below sits in the model's first layer. Nothing gets past it.

# %%
from minikv import load_model

torch.set_grad_enabled(False)
model = load_model("smollm2")
prompt = list(model.encode("Here is how to keep bees on a roof without falling off it. First of all, " * 20))[:200]
theirs = model.hf.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, 200:].tolist()

try:
    with watching(model) as rounds:
        mine = with_cache(only_new(model), list(prompt), 20)
except NotImplementedError:
    print("[ ] the stretch: not attempted yet")
else:
    count = sum(len(each.computed) for each in rounds)
    print(f"{count:,} rows, at most 219:", count <= 219)
    same = "nothing came back" if mine is None else [int(token) for token in mine] == theirs
    print("the same tokens as transformers:", same)
