# %% [markdown]
# # 01 What is a KV cache?
#
# **Why may a model keep old keys and values instead of computing them again?**
#
# When you are through, you can
#
# * **generate** text with a model in five lines of your own, and say what it costs;
# * **prove by experiment** what a new word changes in a model, and what it cannot change;
# * **compute** by hand what a model does with the keys and values that it kept.
#
# You need: Python with a function and a list. You have seen an array. You need not know how a language model works.
# About 70 minutes, 35 of them in [exercises/01_what_is_a_kv_cache.ipynb](../exercises/01_what_is_a_kv_cache.ipynb).
#
# In a hurry, 30 minutes: run all cells down to *What is inside* and read on from there. Make the predictions, and do
# only exercise 1.3. If you know transformers well, do the same; p-1.2 and the last experiment are for you.

# %% [markdown]
# ## Two questions from before
#
# One minute each, without looking anything up:
#
# 1. In chapter 00 a server told you what somebody else had sent to it. What had you done to get it?
# 2. Its answer had the status 200. What does a machine that looks at the status make of that?
#
# <details><summary>Answers</summary>
#
# 1. You asked a question that was too long. There was no trick and no password.
# 2. That all went well. The status says nothing about whose words are in the answer.
#
# </details>
#
# A server cannot tell you what it does not have. So it had kept something of those people. What does a server
# keep of your words, and in which form? That is this chapter.

# %%
from time import perf_counter

import torch

from minikv import load_model
from minikv.course import learner_or_reference, predict, reveal, surprises
from minikv.course.chapters.looking import keys_and_values, one_token, watching
from minikv.viz.steps import rounds_picture

torch.set_grad_enabled(False)
model = load_model("smollm2")
print(f"a real model, {sum(weight.numel() for weight in model.hf.parameters()):,} numbers learned from text")

# %% [markdown]
# ## What a model reads: tokens
#
# A model does not read letters. Text is first cut into **tokens**: pieces that are often words, and sometimes parts of
# words. Each token has a number, its **id**. Where it stands in the text is its **position**, counted from 0.
# `model.encode` turns text into ids, and `model.decode` turns ids into text.

# %%
ids = model.encode("Unbelievable! The key is under the flowerpot.")
print("position   id      token")
for position, token in enumerate(ids):
    print(f"{position:5}   {token:6}     {model.decode([token])!r}")

# %% [markdown]
# A space belongs to the word that follows it. `Unbelievable` takes three tokens, `flowerpot` takes two.
#
# For a model, the ids are the text. One and the same text can be cut in more than one way:

# %%
for ids in ([33488], [54, 8603]):
    print(ids, [model.decode([token]) for token in ids], "->", model.decode(ids))
print("encode gives", list(model.encode("France")))

# %% [markdown]
# ## What it gives back: scores
#
# Take the model as a black box for now. Ids go in, scores come out: **one row for each position, and in each row one
# score for each token that there is.** A high score says: this one is likely to come next. (`model.hf` is the model in
# *transformers*, a library that many programs run models with. A *tensor* is what an array is called there.)


# %%
def scores(ids):
    """Scores as a tensor, [positions, tokens]."""
    return model.hf(torch.as_tensor(ids).reshape(1, -1), use_cache=False).logits[0]


question = list(model.encode("The capital of France is"))
rows = scores(question)
print("rows:", rows.shape[0], "  scores in each row:", f"{rows.shape[1]:,}")
print()
print("position   token        best guess of that row")
for position, (token, guess) in enumerate(zip(question, rows.argmax(dim=1).tolist(), strict=True)):
    print(f"{position:5}      {model.decode([token]):12} {model.decode([guess])!r}")

# %% [markdown]
# Read the table slowly, from top to bottom. After `The capital` the model expects ` of`, and it is right. After
# `The capital of` it expects ` the`. France comes next, but **that row has not seen France**. Remember this.
#
# So one call gives one token. To write a whole answer, a program goes round and round: get the scores, choose a token,
# add it to the text, and again. If it always chooses the token with the best score, this is called *greedy*. Every
# chat program has such a loop inside.
#
# **Now exercise 1.1** in [exercises/01_what_is_a_kv_cache.ipynb](../exercises/01_what_is_a_kv_cache.ipynb), 8 minutes:
# write that loop. Then come back: the next cell uses your function. The text that you begin with is called the
# *prompt*.

# %%
greedy = learner_or_reference("ex-1.1")

start = list(model.encode("One, two, three,"))
with watching(model) as without_cache:  # notes what goes through the model, round by round
    new = [int(token) for token in greedy(scores, list(start), 8)]

print(repr(model.decode(start)), "->", repr(model.decode(new)))
theirs = model.hf.generate(torch.tensor([start]), max_new_tokens=8, do_sample=False)[0, len(start) :]
print("the same tokens as transformers' own generate:", new == theirs.tolist())

# %% [markdown]
# ## What it costs
#
# For each token that you show it, the model has the same work to do, and one row of scores comes out. So count the work
# in **rows**: one for each token, each time it is shown. `watching` has counted them.

# %%
print("rows in each round:", [len(each.computed) for each in without_cache])
print("all together:", sum(len(each.computed) for each in without_cache), "rows, for", len(new), "new tokens")

# %% [markdown]
# In each round the model works on the whole text again, and all of it but one token it had before. Here is a longer
# text. The first 200 tokens are the prompt, and we want 20 more. It takes some seconds.

# %%
STORY = (
    "Nora keeps bees on the roof of the old town hall. Every morning she climbs the stairs with a flask of tea, lifts "
    "the lid of each hive, and listens. Content bees hum one long note. Hungry bees sound like rain on a tin roof. In "
    "June the lime trees flower along the river, and the honey turns pale and tastes of mint. The mayor gets one jar a "
    "year, for the use of the roof. Everybody else has to pay. Last spring a swarm left the hall and settled under the "
    "clock of the station. The trains stopped for an hour. Nora came with a box and a bed sheet, and a crowd watched "
    "her from behind the glass. She shook the branch once, waited until the queen had walked into the box, and the "
    "others followed her. Then she carried them home on the tram. Nobody sat next to her. Since that day there is a "
    "small sign at the station, next to the table of departures. It shows the number of minutes since the last bee "
    "was seen on platform two. Children look at it before they look at the trains."
)
story = list(model.encode(STORY))[:200]

began = perf_counter()
with watching(model) as rounds:
    story_goes_on = [int(token) for token in greedy(scores, list(story), 20)]
seconds_without = perf_counter() - began

print(f"{sum(len(each.computed) for each in rounds):,} rows, for {len(story_goes_on)} new tokens")
print(f"{sum(1000 + done for done in range(1000)):,} rows it would be for 1,000 after a prompt of 1,000")

# %% [markdown]
# 200 + 201 + 202 and so on, up to 219.
#
# Can the work of the last round not be kept? Only if it would come out the same again. Would it? For that we
# must look into the box.

# %% [markdown]
# ## What is inside
#
# * The model is a stack of **layers**, here 30. Every token goes through all of them, one after the other: it enters
#   layer 0 as a row of 576 numbers, and each layer changes this row a little.
# * In each layer a token may look at other tokens and take something from them. This is called **attention**.
# * For that, the layer makes two short rows of numbers from each token. By its **key** a token is found. Its **value**
#   is what others take from it.
# * A layer does this several times side by side, each time with numbers of its own. Each of these is a **head**. Here
#   keys and values have 3 heads.
#
# Think of a library in which the books are tokens: the key is what is printed on the spine, the value is what stands
# inside.

# %%
text = story[:64]
kept = keys_and_values(model, text)

print("layers:", len(kept))
print("keys of layer 0:  ", tuple(kept[0].keys.shape), "that is positions, heads, numbers;", kept[0].keys.dtype)
print("values of layer 0:", tuple(kept[0].values.shape))
print()
print(f"position 3 is {model.decode([text[3]])!r}. Its key in layer 0, head 0, begins with")
print("  ", [round(number, 1) for number in kept[0].keys[3, 0, :8].tolist()])

# %% [markdown]
# Numbers, and no text anywhere. (If you know transformers: these are the tensors in `past_key_values`, with the axes
# in another order. In newer versions it is called `cache`.)
#
# ### One token more
#
# That is what happens in each round of your loop: the text gets one token longer. Run the cell to see the question.
# Then put a letter in quotation marks, such as `"B"`, in place of `...`, add `sure=True` if you are, and run it again.
# Nobody scores it.

# %%
predict("p-1.1", ...)

# %% [markdown]
# An experiment: look at the keys, append a token, look again, and compare each old token with itself. Computers round,
# so the same sum may come out a little different if it is done in another order. Hence a difference of up to 0.0001
# does not count.

# %% tags=["answers-prediction"]
extra = model.encode("Today")[0]
after = keys_and_values(model, [*text, extra])

changed_keys = 0
for old, new in zip(kept, after, strict=True):
    largest = (new.keys[:64] - old.keys).abs().amax(dim=(1, 2))  # at each position, over its heads and numbers
    changed_keys += int((largest > 0.0001).sum())

print(f"{changed_keys} of {30 * 64:,} keys changed")
reveal("p-1.1")

# %% [markdown]
# ### One token in front
#
# Do old keys and values never change, then?

# %%
predict("p-1.2", ...)

# %% [markdown]
# Now the comparison needs more care than the one above. **Exercise 1.2**, 12 minutes: write the experiment for a token
# that is put in at *any* position. Then come back.

# %% tags=["answers-prediction"]
changed = learner_or_reference("ex-1.2")


def keys_of(ids):
    return [layer.keys for layer in keys_and_values(model, ids)]


def values_of(ids):
    return [layer.values for layer in keys_and_values(model, ids)]


for name, look in (("values", values_of), ("keys", keys_of)):
    counts = [len(positions) for positions in changed(look, list(text), extra, 0)]
    deeper = " or ".join(str(count) for count in sorted(set(counts[1:])))
    print(f"{name:6}  layer 0: {counts[0]:2} of 64   each of the layers 1 to 29: {deeper} of 64")
reveal("p-1.2")

# %% [markdown]
# One token in front, and nothing is as it was, apart from the values of layer 0. These are made from the token alone.
#
# But the *keys* of layer 0 did change, and that before anybody had looked at anybody. What else can a key know? Think
# of it in the next question.

# %%
predict("p-1.3", ...)

# %% tags=["answers-prediction"]
first, second = [position for position, token in enumerate(text) if model.decode([token]) == " bees"][:2]
print(f"' bees' at positions {first} and {second}")
for name in ("keys", "values"):
    equal = []
    for layer in kept:
        rows = getattr(layer, name)
        equal.append(torch.allclose(rows[first], rows[second], atol=0.0001))
    print(f"{name:6}  layer 0: {'the same' if equal[0] else 'different'}", end="   ")
    print("layers 1 to 29:", "the same in some" if any(equal[1:]) else "all different")
reveal("p-1.3")

# %% [markdown]
# A key carries its position: its numbers are turned by an angle that depends on where the token stands. With one token
# in front, each of the others stood one position further on.
#
# So there is no such thing as "the key of the word *bees*". There is a key of this token, at this position, after this
# text.
#
# (All this holds for models that turn their keys by position, as SmolLM2, Llama and Qwen do. GPT-2 adds the position
# to the token before layer 0. There, p-1.2 and p-1.3 come out differently: even the values of layer 0 know their place.
# What you see next holds for both.)

# %% [markdown]
# ## The reason
#
# At the end, nothing changed. In front, nearly everything did. And in between?

# %%
for where in (0, 16, 32, 48, 64):
    layers = [sorted(int(position) for position in each) for each in changed(values_of, list(text), extra, where)]
    deeper = layers[1] if all(layer == layers[1] for layer in layers[1:]) else "not the same in all layers"
    who = f"positions {deeper[0]} to {deeper[-1]}" if deeper else "nobody"
    print(f"put in at {where:2}   layer 0: {'somebody' if layers[0] else 'nobody'}   layers 1 to 29: {who}")

# %% [markdown]
# From layer 1 on, everybody who stands *after* the new token, and nobody before it. **A token looks back at what stands
# before it, and never ahead.** You saw it in the table of guesses: the row of ` of` had not seen ` France`.
#
# The model was built like this on purpose. It learned by guessing, at every position of a text at once, which
# token comes next. If it could look ahead, it would have copied the answer and learned nothing.
#
# Now put it together. In your loop, new tokens come only at the end. There, they change no key and no value of any
# old token. So old keys and values may be kept, and to keep them is not a compromise: they are what would be computed
# again.
#
# And that is enough. In all the layers, attention is the only place where a new token meets the old ones, and what it
# meets there are their keys and values. So only the new token has to go through the model. The kept keys and values
# are the **KV cache**.

# %% [markdown]
# ## What it saves
#
# The story again: a prompt of 200 tokens and 20 more.

# %%
predict("p-1.4", ...)

# %% [markdown]
# `generate` of transformers uses a KV cache unless you forbid it.

# %% tags=["answers-prediction"]
with watching(model) as rounds:
    output = model.hf.generate(torch.tensor([story]), max_new_tokens=20, do_sample=False)

print("rows in each round:", [len(each.computed) for each in rounds])
print("all together:", sum(len(each.computed) for each in rounds), "rows")
print("the same 20 tokens as without a cache:", output[0, 200:].tolist() == story_goes_on)

# %% [markdown]
# 19 times fewer rows. And the clock? The first round has 200 rows, each of the others has one. We time one round and
# then all 20, three times each, and keep the best. These are the only numbers in the chapter that differ from machine
# to machine.


# %% tags=["answers-prediction", "nbval-ignore-output"]
def seconds(count):
    began = perf_counter()
    model.hf.generate(torch.tensor([story]), max_new_tokens=count, do_sample=False)
    return perf_counter() - began


timed = [(seconds(1), seconds(20)) for _ in range(3)]
large, all_20 = (min(each) for each in zip(*timed, strict=True))
small = (all_20 - large) / 19
print(f"all 20 tokens: {4190 / 219:.0f} times fewer rows, and {seconds_without / all_20:.0f} times as fast")
print(f"a round of 200 rows takes {large / small:.0f} times as long as a round of 1 row")

# %% tags=["answers-prediction"]
reveal("p-1.4")

# %% [markdown]
# Below is what went through the model when you counted on from *three*: first your own loop, then `generate`. Time runs
# down, one line for each round; positions run across. Dark is computed now, light is only read. (The slider of the
# figure needs Jupyter.)

# %% tags=["answers-prediction"]
with watching(model) as with_cache:
    output = model.hf.generate(torch.tensor([start]), max_new_tokens=8, do_sample=False)

tokens = [model.decode([token]) for token in output[0].tolist()]
rounds_picture({"without a cache": without_cache, "with a cache": with_cache}, tokens)

# %% [markdown]
# A full triangle without a cache, a diagonal with one. (The first line is the same: in the first round nothing is
# kept yet.) Look at the light cells, too. **The cache saves computing. It does not save reading**: each new token
# still looks at everything that stands before it, and there is more of that in every round.

# %% [markdown]
# ## What a new token does with it
#
# One thing is left: what happens to keys and values when they are read? It is less than you might think.
#
# From the new token, and only from that one, a layer makes a third row, its **query**: what this token is looking for.
# Then, in each head:
#
# 1. The query is compared with the key of each position. That gives one **score** for each position: the higher, the
#    better they fit together. (Not the scores of tokens from above. These stay inside the layer.)
# 2. The scores are turned into **weights**, which sum to 1.
# 3. The values are added up, each with its weight. The sum is what the token takes away.
#
# For the second there is a standard way, the *softmax*. It takes two lines:


# %%
def softmax(scores):
    grown = torch.exp(scores)
    return grown / grown.sum()


for scores_of_three in ([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]):
    print(scores_of_three, "->", [f"{weight:.0%}" for weight in softmax(torch.tensor(scores_of_three)).tolist()])

# %% [markdown]
# The largest score gets most. And the size matters: if all scores are ten times as large, the largest takes
# everything.
#
# **Now exercise 1.3**, 15 minutes, four lines: attention of one new token. You find the rule from examples. Its
# check compares your numbers with those of a real layer.

# %% [markdown]
# Your function, inside a real model. The last token of this text is ` flower`, and it stands there for the second time.
# We look at one head of layer 18. If you were that token and had to say what comes next, where would you look?

# %% tags=["answers-prediction"]
attend = learner_or_reference("ex-1.3")


def shares(answer, tokens):
    """The two positions with the largest weights."""
    weights = torch.as_tensor(answer[0]).flatten()
    for position in weights.topk(2).indices.tolist():
        print(f"   {weights[position]:4.0%} on position {position:2}, {tokens[position]!r}")


garden = model.encode("The key is under the third flowerpot. Please look under the third flower")
names = [model.decode([token]) for token in garden]
print(list(enumerate(names)))

now = one_token(model, garden, layer=18, head=2)
answer = attend(now.query, now.own_key, now.own_value, now.old_keys, now.old_values)
shares(answer, names)
same = torch.allclose(torch.as_tensor(answer[1], dtype=torch.float32).flatten(), now.result, atol=0.001)
print("your result is what the model itself computes there:", same)

# %% [markdown]
# It looked for the place where ` flower` had stood before, and took what came next. Nobody wrote that rule down. It was
# learned, and you have just computed it by hand. (SmolLM2 asks with 9 queries in each layer, and three at a time share
# the same keys and values. We took the first of three. Chapter 02 comes back to this.)
#
# ### And now with somebody else's
#
# One last experiment. Here is another text, in which no pot was ever mentioned. First its last token looks at its own
# past. Then we hand it the kept keys and values of *the text above* in place of its own.

# %%
mine = model.encode("Where did she leave it? I have looked under the third flower")
my_names = [model.decode([token]) for token in mine]
me = one_token(model, mine, layer=18, head=2)

print("its own past:")
shares(attend(me.query, me.own_key, me.own_value, me.old_keys, me.old_values), my_names)
print("somebody else's past:")
shares(attend(me.query, me.own_key, me.own_value, now.old_keys, now.old_values), [*names[:-1], my_names[-1]])

# %% [markdown]
# In its own text there is nothing to be found, so it puts everything on the very first token, where it does no harm.
# (Many heads do that when they find nothing.) In the other text it finds ` pot`, and takes it.
#
# No error, no warning. Look at your four lines: **nothing in them asks whose keys these are.** Somebody else has to see
# to that. Who, and how it went wrong, is the rest of the course.

# %% [markdown]
# ## What many believe
#
# | Many believe | What you saw |
# |---|---|
# | The cache stores text, or finished answers. | Tensors: for each layer, position and head a key and a value. |
# | A word has one key. | ` bees` at two positions: two keys. And from layer 1 on, two values. |
# | Old entries must be brought up to date as the text grows. | Not one of 1,920 keys changed. |
# | A part of a text has its keys, wherever it stands. | One token in front, and all of them were different. |
# | With a cache, a model need not look back. | It computes one row, and reads all the others. |

# %% [markdown]
# ## Three questions
#
# **1. Keys and values are kept. Why does nobody keep the queries?**
#
# <details><summary>they are too large</summary>
#
# A query has as many numbers as a key. Size is not the reason. Who would read an old one?
#
# </details>
# <details><summary>nobody reads an old query</summary>
#
# Yes. A query asks once, in the round in which its token is new. Later tokens ask with their own queries. What they
# need of an old token is its key, to find it, and its value, to take from it.
#
# </details>
# <details><summary>queries change when the text grows, keys do not</summary>
#
# An old query would come out the same as well, for the same reason: its token does not look ahead. It could be kept. It
# would only never be used.
#
# </details>
#
# **2. Yesterday you told a model your name. Today you open a new chat, and it does not know it. What became of the KV
# cache?**
#
# <details><summary>it belonged to yesterday's text, and today's text does not begin with it</summary>
#
# Yes. A cache is work that was kept for *one* text that goes on. It is no memory of you. If a chat program does know
# your name, then somebody put it in front of today's text.
#
# </details>
# <details><summary>it went into the model, which should know the name by now</summary>
#
# Answering changes no number of the model. What it learned, it learned before.
#
# </details>
# <details><summary>it keeps the words, but the model does not look them up</summary>
#
# There are no words in it. There are keys and values, and they are good for nothing but for going on with that very
# text.
#
# </details>
#
# **3. A prompt has 1,000 tokens. You correct the one at position 10 and send it again. Of how many tokens may the old
# keys and values be used, in all layers?**
#
# <details><summary>999, all but the corrected one</summary>
#
# Those after position 10 have all looked back at the old token. From layer 1 on, their keys and values hold a little
# of it.
#
# </details>
# <details><summary>10, those at positions 0 to 9</summary>
#
# Yes. They could not see position 10, so nothing is different for them. Everything after it has to be computed again.
#
# </details>
# <details><summary>none, the prompt is a different one</summary>
#
# Its beginning is the same, and the beginning does not know what follows.
#
# </details>

# %% [markdown]
# ## If you want more
#
# *Stretch, at the end of the exercise notebook:* generate with a cache of your own making. Target: for 20 tokens after
# a prompt of 200 at most 219 rows, and the same tokens as transformers.

# %% [markdown]
# ## In your own words
#
# One sentence, for yourself: why may a model keep old keys and values instead of computing them again?

# %%
my_sentence = "..."

# %% [markdown]
# ## The story so far
#
# | step | The incident, as the article tells it | state |
# |---|---|---|
# | 1 | Somebody sends a prompt that is longer than the pool of the machine that reads prompts. | not yet |
# | 2 | The server does not turn it away. It puts a stand-in of one token in its place. | not yet |
# | 3 | The next part asks only whether that request is over. It is, so it may pass. | not yet |
# | 4 | A second machine makes room for 8 pages. It is sent one. | not yet |
# | 5 | It reads all 8. In 7 of them lies what strangers wrote before. | not yet: but you know what lies there |
#
# What lies there are keys and values. You have seen what it means to read them, and that attention takes from them
# whoever they belong to.
#
# Next: what does this cost? One token leaves more behind than you think.
#
# Go on with [notebooks/02_the_memory_bill.ipynb](02_the_memory_bill.ipynb).

# %%
surprises(1)

# %%
print("chapter 01: done")
