# %% [markdown]
# # 02 The memory bill
#
# **When is the notepad bigger than the model, and who notices?**
#
# When you are through, you can
#
# * **weigh**: say from a model's configuration what one token costs;
# * **compare** what keys and values take with what the model itself takes;
# * **find the gap** between what a server promises and what it has room for.
#
# You need: chapter 01, and Python with a dict. About 55 minutes, 27 of them in
# [exercises/02_the_memory_bill.ipynb](../exercises/02_the_memory_bill.ipynb).
#
# In a hurry, 30 minutes: make the first two predictions, skip exercise 2.1, and do exercise 2.2. It then uses a
# reference in place of your 2.1 and says so.

# %% [markdown]
# ## Two questions from before
#
# One minute each, without looking anything up:
#
# 1. A text of 64 tokens gets one more. How many of the old keys must be computed again?
# 2. To write the next token, a model looks back at every earlier one. Which two rows of numbers does it need of each,
#    in each layer? And which third row of an old token does nobody ever ask for again?
#
# <details><summary>Answers</summary>
#
# 1. None. A token never looks ahead, so what follows cannot change it.
# 2. Its key and its value. Its query was needed once, when it was the newest token itself.
#
# </details>
#
# So keys and values are kept: they are the model's notepad. A notepad takes room. This chapter is about how much.

# %%
import torch
from transformers import AutoConfig

from minikv import KVGeometry, SamplingParams, load_model
from minikv.course import learner_or_reference, predict, reveal, surprises
from minikv.course.chapters.ex_2_1 import minikv_stores, twelve
from minikv.course.chapters.room import engine_with_room, kept_for
from minikv.course.configs import about
from minikv.viz.bill import bill
from minikv.viz.bill_panel import bill_panel

torch.set_grad_enabled(False)
GIB = 2**30  # bytes
model = load_model("smollm2")
configs = twelve()  # configurations of twelve known models, as their makers published them
print(", ".join(configs))

# %% [markdown]
# ## Five models and a bet
#
# Every published model comes with a small file, its **configuration**. It says how many layers there are, how wide they
# are, and so on. It is all that one needs to know what a token costs. The model itself, its millions or billions
# of learned numbers, need not be loaded. These are called its *parameters* or its *weights*. (With the weights in
# attention, in chapter 01, they share only the name.)
#
# First a bet. Take the five models below. Keys and values are kept in 16 bits, which is two bytes for each number.
#
# Run the cell to see the question. Then put a letter in quotation marks, such as `"B"`, in place of `...`, add
# `sure=True` if you are, and run it again. Nobody scores it.

# %%
predict("p-2.1", ...)

# %% [markdown]
# minikv has a part that reads configurations and counts. We ask it.

# %% tags=["answers-prediction"]
five = ["gpt2", "qwen3-0.6b", "llama-2-7b", "llama-3.1-8b", "deepseek-v3"]
counted = {}
for name in five:
    geometry = KVGeometry.from_config(AutoConfig.for_model(**configs[name]))
    counted[name] = geometry.latent_bytes_per_token(torch.float16)

print("model          parameters          bytes of one token")
for name in sorted(five, key=counted.get):
    print(f"{name:12}  {about(name).params:15,}   {counted[name]:10,}")
reveal("p-2.1")

# %% [markdown]
# 671 billion parameters, and a token costs less than in a model of a thousandth of that size. How large a model is and
# how much it keeps are two different things. What decides it? You will find the rule yourself, in exercise 2.1. First
# we look at one model from close up.

# %% [markdown]
# ## On the scales
#
# 64 tokens of English, and a model that is small on purpose. It runs here with 32 bits, four bytes for each number.

# %%
text = (
    "A language model writes one token after another. For each token that it has read it keeps a key and a value in "
    "every layer, so that nothing has to be computed twice. This saves an enormous amount of work. It also takes room, "
    "and this chapter is about how much room it takes and who pays for it"
)
print(len(model.encode(text)), "tokens,", len(text.encode()), "bytes")

# %%
predict("p-2.2", ...)

# %% [markdown]
# The next cell lets the engine read the text and takes out what it keeps: for each layer one tensor of keys and one of
# values.

# %% tags=["answers-prediction"]
kept = kept_for(model, text)
stored = sum(keys.nbytes + values.nbytes for keys, values in kept)

print(f"{stored:,} bytes, {stored / len(text.encode()):,.0f} times as many as the text has")
print(f"one token: {stored // 64:,} bytes")
reveal("p-2.2")

# %% [markdown]
# Where do they come from? Here is all that is kept in layer 0.

# %%
keys, values = kept[0]
print("layers:", len(kept))
print("keys of layer 0:   {} heads × {} tokens × {} numbers".format(*keys.shape))
print("values of layer 0: {} heads × {} tokens × {} numbers".format(*values.shape))
print("bytes of a number:", keys.element_size())
print()
config = configs["smollm2-135m"]
for field in ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"):
    print(f"{field:20}", config.get(field, "(not there)"))

# %% [markdown]
# Chapter 01 left a question open: why fewer heads than queries? SmolLM2 has 9 heads in each layer, and each asks with a
# query of its own. But three at a time share one key and one value. So there are 9 heads that ask, and 3 **KV heads**,
# which have a key and a value of their own. Only these are kept. With 9 of them, a token would cost three times as
# much.
#
# How many bits or bytes a number takes is called the **precision**. Most servers keep 16 bits, and some 8.
#
# **Now exercise 2.1** in [exercises/02_the_memory_bill.ipynb](../exercises/02_the_memory_bill.ipynb), 15 minutes. You
# get twelve configurations, and what a token costs in each. Find the rule. Then come back: the next cell uses your
# function.

# %%
bytes_per_token = learner_or_reference("ex-2.1")

print(f"\n{'':14} {'':17}     16 bit      16 bit          minikv's")
print(f"{'model':14} {'parameters':>17}  one token   tokens a GiB   own engine")
for name in sorted(configs, key=lambda name: bytes_per_token(configs[name], 2)):
    size = bytes_per_token(configs[name], 2)
    stores = minikv_stores(configs[name])
    note = "the same" if stores == size else f"{stores:,}"
    print(f"{name:14} {about(name).params:17,}  {size:9,}   {GIB // size:12,}   {note}")

# %% [markdown]
# Three ways to keep less, and you can see each in the table:
#
# * **Share.** In Llama 2 (7B) and GPT-2 every head has a key and a value of its own. In eight others several heads
#   share one. Llama 3.1 (8B) has as many heads as Llama 2 (7B) and a quarter of the KV heads, so it keeps a quarter.
#   Even with 70 billion parameters Llama 3.1 keeps less than Llama 2 does with 7.
# * **Fewer layers, narrower heads.** gpt-oss-20b has 24 layers and heads of 64 numbers. Llama 3.1 (8B) has 32, and 128.
# * **One row for all.** DeepSeek-V3 and Kimi K2 keep a single row in each layer, called a *latent*. Every head computes
#   its keys and values from it. The number of heads does not matter any more: Kimi K2 has half as many as DeepSeek-V3,
#   and the same cost.
#
# Look at the last column too. A *model* allows one row for all; an *engine* must make use of it. minikv does not: it
# writes out the keys and values of all heads for these two, since that is simpler, and pays for it. So "what a token
# costs" is a question about a model *and* an engine. There are more such choices. Half of the layers of gpt-oss-20b
# look only at the last 128 tokens. An engine may throw away what is older. minikv keeps it, and the table counts it.

# %% [markdown]
# ## The bill
#
# A model is made for texts up to some length. This is its **context**, and it stands in the configuration. For SmolLM2
# it is 8,192 tokens. Providers advertise it.

# %%
weights = sum(parameter.nbytes for parameter in model.hf.parameters())
print(f"weights of SmolLM2: {weights:,} bytes")
predict("p-2.3", ...)

# %% [markdown]
# The weights are there once, however many people use the model. Keys and values are there for every token of every
# user.

# %% tags=["answers-prediction"]
config = configs["smollm2-135m"]
token = bytes_per_token(config, 4)
for users in (1, 2, 4):
    print(f"{users} at once: more than the weights from {weights // (token * users) + 1:,} tokens each")
reveal("p-2.3")

# %% [markdown]
# Here it is as a picture. W is flat: the weights. The lines K are keys and values, for one user and for two. C is the
# context. Where K crosses W, the notepad is as large as the model.

# %% tags=["answers-prediction"]
bill("SmolLM2, 32 bit", token_bytes=token, weight_bytes=weights, context=8192, users=(1, 2))

# %% [markdown]
# Where would the crossing be with 16 bits for everything? Answer before you open it.
#
# <details><summary>Answer</summary>
#
# In the same place. The weights are half as large then, and so are keys and values.
#
# </details>

# %% [markdown]
# ## What was promised, and what fits
#
# So far nobody asked how much memory there is. A server has a graphics card, and the card has a size. Weights and keys
# and values must fit on it together. (So must a few other things, which we leave out. What we find is what could fit at
# best.)
#
# Take Llama 3.1 (8B) with everything in 16 bits. Its context is 131,072 tokens. How much of that does a card hold?
#
# **Now exercise 2.2**, 12 minutes. Then come back.

# %%
gap = learner_or_reference("ex-2.2")

llama, params = configs["llama-3.1-8b"], about("llama-3.1-8b").params
print(f"weights: {2 * params / GIB:.2f} GiB")
print("\ncard      promised     fit   missing")
for card in (8, 16, 24, 80):
    fits, missing = gap(llama, params, card, 16)
    print(f"{card:2} GiB    {fits + missing:8,} {fits:8,}  {missing:8,}")

# %% [markdown]
# Read the line of 16 GiB. The weights fit, and 8,528 tokens more: enough for every question of everyday length. But
# most of what is promised is not there.
#
# The picture for 24 GiB, a large card for a desktop computer. R is what the weights leave over. Where K reaches R, the
# memory is full: M. The promise goes on to C. **Remember the hatched strip.** Whoever sends a prompt of such a length
# was promised an answer, and there is no room for it.

# %%
card = 24
fits, missing = gap(llama, params, card, 16)
sizes = {"token_bytes": bytes_per_token(llama, 2), "weight_bytes": 2 * params, "card_bytes": card * GIB}
bill(f"Llama 3.1 (8B) on {card} GiB, 16 bit", context=fits + missing, fits=fits, **sizes)

# %% [markdown]
# ### What if?
#
# Three sliders: how many people use it at the same time, with how many bits keys and values are kept, and what context
# is advertised. The weights stay at 16 bit. (Click a slider, or reach it with Tab. Then the arrow keys move it, and the
# line below the sliders says what changed.) Three things to try:
#
# 1. One user. At which precision does the promise hold?
# 2. Two users, 16 bit. Where must the promise end?
# 3. Which slider moves W? Which move M?

# %% tags=["live", "nbval-ignore-output"]
bill_panel(
    f"Llama 3.1 (8B) on {card} GiB",
    numbers_per_token=bytes_per_token(llama, 1),
    weight_bytes=2 * params,
    context=fits + missing,
    card_bytes=card * GIB,
    piece=16,
)

# %% [markdown]
# Without sliders, the same in numbers:

# %%
print("tokens that fit, for each user")
print("users   16 bit     8 bit     4 bit")
for users in (1, 2, 4, 8):
    left = card * GIB - 2 * params
    each = [int(left / (bytes_per_token(llama, 1) * size)) // 16 // users * 16 for size in (2, 1, 0.5)]
    print(f"{users:5}  " + "  ".join(f"{tokens:8,}" for tokens in each))

# %% [markdown]
# With 8 bits the promise of 131,072 holds, for exactly one user. The second user breaks it again. Nobody changed a line
# of code for that, and no configuration. Somebody logged in. (The second question: at 37,024. The third: no slider
# moves W. Users and precision move M. The advertised context moves only C: a promise takes no memory.)

# %% [markdown]
# ## Who notices?
#
# A server that really runs: SmolLM2, made for 8,192 tokens, with room for 448. First some ordinary questions.

# %%
engine = engine_with_room(model, 448)
questions = [
    "The capital of France is",
    "One, two, three, four,",
    "Monday, Tuesday, Wednesday,",
    "The opposite of hot is",
    "Water boils at",
    "The first letter of the alphabet is",
]
answers = engine.generate(questions, SamplingParams(max_tokens=4, ignore_eos=True))
print(sum(answer.error is None for answer in answers), "of", len(answers), "answered, such as", repr(answers[0].text))

# %% [markdown]
# All is well. One could test it like this for a year. Now somebody pastes a long letter.

# %%
letter = "Please read this carefully. " * 100
answer = engine.generate([letter], SamplingParams(max_tokens=4))[0]
print("tokens:", len(model.encode(letter)))
print("answer:", repr(answer.text))
print("error: ", answer.error)

# %% [markdown]
# minikv says no, at once and in plain words. It calls 448 its context, not 8,192. When it starts, it looks at what it
# has room for, and promises that and no more. What if we insist on the larger promise?

# %%
try:
    engine_with_room(model, 448, context=8192)
    print("it runs")
except ValueError as error:
    print("it does not start:", str(error).partition(" that")[0])

# %% [markdown]
# The server that this course is about did start. The article about it gives the two numbers: an advertised context of
# 1,048,576 tokens, and room for 681,280 where prompts are read.

# %%
promised, room = 1_048_576, 681_280
print(f"missing: {promised - room:,} tokens, {(promised - room) / promised:.0%} of the promise")

# %% [markdown]
# Only prompts longer than 681,280 tokens were affected, and few people send such prompts. It went on for nearly two
# weeks. Then an outsider reported it. The strip between the two marks is where it happened.
#
# So who notices? Not the model: it knows nothing about cards. Not the card: it knows nothing about promises. Not a test
# with prompts of everyday length. Somebody must put the two numbers side by side, on every machine, and again after
# every change. The provider's own advice after the incident is just that: compare the two whenever weights, precision,
# memory settings or the division of work between machines change.

# %% [markdown]
# ## What many believe
#
# | Many believe | What you saw |
# |---|---|
# | The bigger the model, the more a token costs. | DeepSeek-V3: 671 billion parameters, less than Qwen3 (0.6B). |
# | A kept token is about as large as a word. | 64 tokens: about 10,000 times the bytes of their text. |
# | The context says how much a server can take. | Llama 3.1 (8B) on 24 GiB: a little over half of it fits. |
# | If there were too little memory, it would not run. | Room for 448 of 8,192 tokens, and 6 of 6 answered. |

# %% [markdown]
# ## Three questions
#
# **1. The weights of a model are stored with 4 bits in place of 16. You change nothing else. What moves in the
# picture?**
#
# <details><summary>W and K: everything is a quarter now</summary>
#
# Weights are one thing, keys and values another. They are computed when a prompt is read, and kept with a precision of
# their own. K stays as steep as it was.
#
# </details>
# <details><summary>only W drops, and so M moves to the right</summary>
#
# Yes. Smaller weights leave more room (R rises), so more tokens fit. What one token costs has not changed. To make K
# flatter, one has to store keys and values with fewer bits.
#
# </details>
# <details><summary>nothing, because the card is as large as before</summary>
#
# The card is. But the weights take less of it, and all that they leave is for keys and values.
#
# </details>
#
# **2. Somebody sends a prompt of 30,000 tokens and gets an answer of 100. For how many tokens are keys and values
# kept?**
#
# <details><summary>about 100</summary>
#
# Only the answer is *new*. But each of its tokens looks back at the whole prompt, so the prompt must be there.
#
# </details>
# <details><summary>about 30,100</summary>
#
# Yes. Whether a token was read or written makes no difference to what is kept of it. Long prompts with short answers
# are what fills memory.
#
# </details>
# <details><summary>30,000 at first, and fewer and fewer as the answer grows</summary>
#
# Nothing is used up. The last token of the answer looks back at the first one of the prompt just as the first did.
#
# </details>
#
# **3. The article names prices for a million tokens: 1.40 dollars for input, and 0.26 for input that was sent before
# and is still kept. That is 19 %. Keys and values are there already. Why is it not free?**
#
# <details><summary>the model has to check them against the text, token by token</summary>
#
# It has to find out that the beginning is the same text. But that is a comparison of whole numbers, and next to
# nothing.
#
# </details>
# <details><summary>they take room on the card all that time, and every new token reads them</summary>
#
# Yes. What was saved is computing. The room was not: while they wait, nobody else can have it. And the new tokens look
# back at all of them. (How a provider arrives at its prices, only the provider knows. This is what is left to pay for.)
#
# </details>
# <details><summary>a part of them must be computed again, because a new text follows</summary>
#
# What follows cannot change them: a token never looks ahead.
#
# </details>

# %% [markdown]
# ## If you want more
#
# *Stretch, at the end of the exercise notebook:* twelve models and four cards are 48 pairs. List every pair that
# promises one user more than it holds. Target: all of them, and no extra one. Then change *one* number, and open a gap
# that was closed.

# %% [markdown]
# ## In your own words
#
# One sentence, for yourself: when is the notepad bigger than the model, and who notices?

# %%
my_sentence = "..."

# %% [markdown]
# ## The story so far
#
# | step | The incident, as the article tells it | state |
# |---|---|---|
# | 1 | Somebody sends a prompt that is longer than the memory of the machine that reads prompts. | I can explain this |
# | 2 | The server does not turn it away. It puts a stand-in of one token in its place. | not yet |
# | 3 | The next part asks only whether that request is over. It is, so it may pass. | not yet: chapter 09 checks it |
# | 4 | A second machine makes room for 8 pages. It is sent one. | not yet |
# | 5 | It reads all 8. In 7 of them lies what strangers wrote before. | not yet |
#
# Next: memory is given out in pieces, and taken back. What is in a piece when you get it?
#
# Go on with [notebooks/03_pages.ipynb](03_pages.ipynb).

# %%
surprises(2)

# %%
print("chapter 02: done")
