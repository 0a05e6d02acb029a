# %% [markdown]
# # 02 The memory bill: exercises
#
# Read [notebooks/02_the_memory_bill.ipynb](../notebooks/02_the_memory_bill.ipynb) first; it says when to come here.
# Each check says what your code did. `[ ]` is not attempted yet, `[x]` comes with a hint, and a further one if the same
# thing happens again. `[ok]` keeps your code in `my_minikv/`, and from then on the course runs on it.

# %%
from minikv.course import check, learner_or_reference
from minikv.course.chapters.ex_2_1 import token_costs, twelve
from minikv.course.chapters.ex_2_2 import parameters, shown_cases
from minikv.course.chapters.pairs import CARDS, PIECE, count_pairs, try_change

# %% [markdown]
# ## Exercise 2.1: bytes per token
#
# Difficulty 3 of 5 · importance 5 of 5 · 15 minutes · about 9 lines
#
# Done when your function is right for twelve real configurations, and for the same with other numbers in them. *The
# idea it tests:* what a token costs follows from the layers and from what one layer keeps.
#
# These are the cases: twelve models, and what one token costs with 16 bits, which is two bytes a number.

# %%
for name, size in token_costs().items():
    print(f"{name:14}  {size:9,}")

# %% [markdown]
# You have weighed SmolLM2 in the lesson: 30 layers, in each of them keys and values of 3 KV heads, each 64 numbers
# wide. With two bytes in place of four that is the number above.
#
# Below are the numbers that stand in four of the twelve configurations. Put other names in to see others. Each family
# of models has names of its own for the same things, and leaves out what it does not need. Begin with `gpt2` and
# `llama-3.1-8b`. When your rule is right for some models and not for others, ask what these have in common.
#
# Two of the twelve do not keep keys and values head by head: `deepseek-v3` and `kimi-k2`. They keep one row in each
# layer, from which every head computes its own. It has two parts: a short form of keys and values, and a short piece of
# a key that carries the position. How wide the parts are stands in the configuration. Some numbers there are only about
# queries, and these are not kept.

# %%
for name in ("gpt2", "llama-3.1-8b", "qwen3-0.6b", "deepseek-v3"):
    numbers = {field: value for field, value in twelve()[name].items() if type(value) is int}
    print(name, *(f"{field} {value}" for field, value in sorted(numbers.items())), sep="\n    ")


# %% tags=["exercise"]
def bytes_per_token(config, bytes_per_number):
    """Bytes that one token's keys and values take in all layers. `config` is a dict."""
    # BEGIN SOLUTION ex-2.1: layers, times what one layer keeps, times its bytes, about 9 lines
    layers = config.get("num_hidden_layers") or config["n_layer"]
    if config.get("kv_lora_rank"):
        numbers = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        heads = config.get("num_attention_heads") or config["n_head"]
        width = config.get("head_dim") or (config.get("hidden_size") or config["n_embd"]) // heads
        numbers = 2 * width * (config.get("num_key_value_heads") or heads)
    return layers * numbers * bytes_per_number
    # END SOLUTION


# %% tags=["check"]
check("ex-2.1", bytes_per_token)

# %% [markdown] tags=["solution-only"]
# `config.get(name) or ...` reads as it is meant: this if it is said, otherwise that. The order matters. A `head_dim`
# that is stated comes before one that is worked out: in Qwen3 (0.6B) all heads together are twice as wide as the model,
# and in Qwen3 (32B) they are wider too. The 2 stands for a key and a value. A latent row has no 2, since both are made
# from the same row.

# %% [markdown]
# Back to [the lesson](../notebooks/02_the_memory_bill.ipynb).

# %% [markdown]
# ## Exercise 2.2: the gap
#
# Difficulty 2 of 5 · importance 5 of 5 · 12 minutes · about 5 lines
#
# Done when you know for any model and any card how many tokens fit, and how many are missing from the promise. *The
# idea it tests:* the promise comes from one place and the room from another.
#
# * `config` is a model's configuration, and `params` the number of its weights, its parameters.
# * `card` is the size of a card in GiB. One GiB is 1,024 × 1,024 × 1,024 bytes.
# * Weights, keys and values: every number takes 16 bits.
# * Memory is given out in pieces. A piece is room for `piece` tokens, and nobody gets a part of one.
#
# Give two numbers back: how many tokens `fit`, and how many are `missing` from the advertised context. These are cases:

# %%
print("model                params   card   piece       fit    missing")
for case, params, (fits, missing) in shown_cases():
    print(f"{case.model:12} {params:15,} {case.card:4} GiB {case.piece:6} {fits:9,} {missing:10,}")

# %% [markdown]
# Where `missing` is below zero, there is more room than one user was promised. It is room for others.
#
# The next cell gets your function of exercise 2.1, or a reference. You may use it.

# %%
bytes_per_token = learner_or_reference("ex-2.1")


# %% tags=["exercise"]
def gap(config, params, card, piece):
    """Tokens that fit beside the weights, and how many are missing: `return fits, missing`."""
    # BEGIN SOLUTION ex-2.2: what is left, whole pieces of it, and the promise, about 5 lines
    context = config.get("max_position_embeddings") or config["n_positions"]
    left = max(0, card * 2**30 - params * 2)
    pieces = left // (bytes_per_token(config, 2) * piece)
    return pieces * piece, context - pieces * piece
    # END SOLUTION


# %% tags=["check"]
check("ex-2.2", gap)

# %% [markdown] tags=["solution-only"]
# The two halves of the last line have nothing to do with each other. One comes from a card, the other from a file that
# somebody wrote when the model was made. That is the whole problem.

# %% [markdown]
# Back to [the lesson](../notebooks/02_the_memory_bill.ipynb): with this function you see what was promised and is not
# there.

# %% [markdown]
# ## Stretch: who promises too much?
#
# Twelve models, four cards, pieces of 16 tokens, everything in 16 bits: 48 pairs. Which promise one user more than they
# hold? Target: every pair, and no other. `twelve()` gives the configurations and `parameters()` the numbers of weights.

# %%
print("cards:", *CARDS, "GiB; pieces of", PIECE)
params = parameters()
# BEGIN SOLUTION ex-2.2: the stretch, a list of pairs such as ("gpt2", 16), about 3 lines
pairs = [
    (name, card) for name, config in twelve().items() for card in CARDS if gap(config, params[name], card, PIECE)[1] > 0
]
# END SOLUTION
count_pairs(pairs)

# %% [markdown]
# Now take a pair that is *not* in your list: its promise holds. Change one number so that it no longer does: the number
# of users who were promised the same at the same time, or the bits of every number. Say it as
# `(model, card, "users", 3)` or `(model, card, "bits", 32)`.

# %%
# BEGIN SOLUTION ex-2.2: the stretch, one change
change = ("llama-2-7b", 16, "users", 2)
# END SOLUTION
try_change(change)
