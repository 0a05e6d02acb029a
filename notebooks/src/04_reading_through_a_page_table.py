# %% [markdown]
# # 04 Reading through a page table
#
# **How does attention find its tokens, and where must it stop?**
#
# When you are through, you can
#
# * **find** any token of a request in a pool where its pages lie in no order;
# * **attend** through a page table: your own function, in a real model, in every layer;
# * **stop** at the last slot that was written, and show what happens to those who read on.
#
# You need: chapter 03, and from chapter 01 what a key and a value are for. About 105 minutes, 73 of them in
# [exercises/04_reading_through_a_page_table.ipynb](../exercises/04_reading_through_a_page_table.ipynb).
#
# In a hurry, 35 minutes: run all cells down to *Where must it stop?*, begin there, and do only exercise 4.2. If page by
# page is too much for today, leave out 4.3: nothing later needs it.

# %% [markdown]
# ## Two questions from before
#
# One minute each, without looking anything up:
#
# 1. Ben gets two pages of four slots that were Ada's, and writes six tokens. How many slots of his pages hold something
#    that he did not write? What do they hold?
# 2. A new token looks at 36 earlier ones and at itself. What does it take from each key, and what from each value?
#
# <details><summary>Answers</summary>
#
# 1. Two, and they hold what Ada wrote there. He owns the pages. Of these two slots he is not the writer.
# 2. From each key a score: how much does this token matter now? The softmax makes weights of the scores, and the
#    weights add up to 1. From each value it takes a share as large as the weight.
#
# </details>

# %%
import random

import torch

from minikv import Engine, SamplingParams, load_model
from minikv.course import learner_or_reference, predict, reveal, surprises
from minikv.course.chapters.ch04 import Busy, Call, bytes_written, minikv_attend, reads
from minikv.course.mine import my_parts
from minikv.course.seats.attention import as_attention
from minikv.sampling import sample
from minikv.trace import Allocate
from minikv.viz.reads import read_map

torch.set_grad_enabled(False)
model = load_model("smollm2")
SIZE = 16  # slots in a page, all through this chapter


def lent_pages(engine):
    """The pages that were lent, in the order in which they were."""
    return [event.page for event in engine.trace if isinstance(event, Allocate)]


# %% [markdown]
# ## A letter in pieces
#
# Ada sends her letter to a server that has been busy for a while. Free pages lie here and there, and she gets them in
# no order. Then we read the whole pool with exercise 3.3, page after page.

# %%
letter = (
    "Dear Mrs. Okafor, I am away until Sunday. The spare key is under the third flowerpot, and the alarm code is "
    "4471. Please feed Biscuit twice a day, and do not tell my brother Leon that I am in Lisbon. He thinks that I am "
    "at work, and I would like it to stay that way."
)
ids = list(model.encode(letter))
engine = Engine(model, page_size=SIZE, num_pages=6, allocator=Busy)
engine.generate([letter], SamplingParams(max_tokens=1))
table = lent_pages(engine)

read_page = learner_or_reference("ex-3.3")
pool_tokens = []
for page in range(engine.pool.num_pages):
    tokens = read_page(engine.pool, page, model.hf)
    pool_tokens += tokens
    print(f"page {page}: {model.decode(tokens)!r}" if page in table else f"page {page}: never lent")

# %% [markdown]
# All of it is there, and in this order nobody can read it. (Page 5 ends with six slots that were never written. They
# hold zeros, and some token has to be the nearest to zero.) What is missing is one list: the request's pages, in the
# order of its tokens. That is its **page table**.

# %%
print("Ada's page table:", table)
print("tokens:", len(ids))

# %% [markdown]
# Her first sixteen tokens lie in the first page of the table, the next sixteen in the second, and so on. The pool
# counts its slots through, from the first slot of page 0 to the last slot of the last page. To find a token you need
# its slot. The slots of some tokens in a row are their **slot mapping**: where the engine puts new tokens, and where it
# finds old ones.
#
# **Now exercise 4.1** in
# [exercises/04_reading_through_a_page_table.ipynb](../exercises/04_reading_through_a_page_table.ipynb), 8 minutes. Then
# come back: the next cell uses your function.

# %%
slot_mapping = learner_or_reference("ex-4.1")
slots = list(slot_mapping(table, 0, len(ids), SIZE))

print(model.decode([pool_tokens[slot] for slot in slots]))
print()
record = [int(engine.pool.ledger.position[slot]) for slot in slots]  # minikv's own record: which token is in a slot
print("minikv's record says the same:", record == list(range(len(ids))))
print("the next token will go to slot", *slot_mapping(table, len(ids), len(ids) + 1, SIZE))

# %% [markdown]
# ## Does the order matter?
#
# Attention needs every token of the request: a score for each, a weight for each, a share of each value. It goes by the
# page table. Now suppose that somebody moves the pages, or the entries of the table.

# %%
predict("p-4.1", ...)

# %% [markdown]
# We can try it in the real model. `as_attention` puts a function of ours in the place of the engine's attention. The
# engine then asks it, for each token and in each of the 30 layers: here is a query, here is the pool, here is the page
# table, and so many tokens are written. The function gives back what the token takes away. `minikv_attend` is minikv's
# own attention, asked in this way. So each of the functions below changes a thing, and then asks minikv.

# %% tags=["answers-prediction"]


def moved(query, keys, values, table, written, scale):
    """Every page of the pool moves to another place, and the table is corrected."""
    order = random.Random(1).sample(range(len(keys)), len(keys))
    return minikv_attend(query, keys[order], values[order], [order.index(page) for page in table], written, scale)


def other_order(query, keys, values, table, written, scale):
    """Nothing moves. The full pages stand in the table the other way round."""
    full = written // SIZE
    return minikv_attend(query, keys, values, table[:full][::-1] + table[full:], written, scale)


def last_page_first(query, keys, values, table, written, scale):
    """Nothing moves. All pages stand the other way round, the one that is not full too."""
    return minikv_attend(query, keys, values, table[::-1], written, scale)


answers = []
for function in (minikv_attend, moved, other_order, last_page_first):
    engine = Engine(model, page_size=SIZE, num_pages=6, allocator=Busy, attention=as_attention(function))
    answers += engine.generate([letter], SamplingParams(max_tokens=12, ignore_eos=True))
    print(f"{function.__name__:15} {answers[-1].text!r}")

print("the first three are equal:", answers[0].token_ids == answers[1].token_ids == answers[2].token_ids)
reveal("p-4.1")

# %% [markdown]
# The order of full pages carries no meaning. (The last digits of the numbers may differ: sums are rounded, and here
# they are added up in another order.) Where does order matter, then? See the last answer: in the page that is not full.
# If it stands first, attention looks for tokens in slots where nobody has written yet, and misses as many of its own.
# And the next token goes into the last page of the table, behind the others. So the table keeps its order for those who
# *write*.
#
# (It also matters in models that use the distance between two tokens when they read, or that look back only so far.
# SmolLM2, Llama and Qwen build the position into the key when it is written.)

# %% [markdown]
# ## Where must it stop?
#
# Ben thanks somebody for flowers, in 36 tokens. The model has chosen the next word, ` forward`, and that is written
# too: 37. His three pages have 48 slots.

# %%
predict("p-4.2", ...)

# %% [markdown]
# How can one see what a function reads, whatever its code looks like? Put NaN ("not a number") into one slot, and call
# the function. Every sum that NaN gets into becomes NaN. If NaN comes out, the slot was read. Then the next slot.
#
# For this we note one call that the engine makes: the 37th token, in the last layer.

# %% tags=["answers-prediction"]
thanks = (
    "Dear Mr. Brandt, thank you so much for the flowers. They came on Friday, and they are lovely. The white ones are "
    "on my desk, and I am looking"
)
calls = []


def noted(*arguments):
    calls.append(Call(*arguments))
    return minikv_attend(*arguments)


engine = Engine(model, page_size=SIZE, num_pages=4, allocator=Busy, attention=as_attention(noted))
engine.generate([thanks], SamplingParams(max_tokens=2))
call = calls[-1]

print("tokens of the prompt:", len(model.encode(thanks)))
print("page table:          ", call.table)
print(f"{len(call.table) * SIZE} slots reserved, {call.written} written")
for told in (37, 40, 48):
    print(f"told that {told} are written, attention reads {len(reads(minikv_attend, call, told).slots)}")
reveal("p-4.2")

# %% [markdown]
# Three numbers, and from here on always all three, in this order:
#
# * **reserved**: slots in the pages that the request holds;
# * **written**: slots that hold its tokens;
# * **read**: slots that attention looks at.
#
# Read must be equal to written: 48, 37, 37. Nothing in the memory says where the written slots end. Those behind are
# slots like all others, with numbers in them. One number says it, and whoever is told a larger one reads on.

# %% [markdown]
# ## Your turn
#
# Attention for one token and *one head*, with the tokens in a row, is what you wrote in exercise 1.3:


# %%
def one_head(query, keys, values, scale):
    """query [width], keys and values [tokens, width]; gives [width]."""
    weights = torch.softmax(keys @ query * scale, dim=0)  # one weight for each token
    return weights @ values


query, keys, values = torch.tensor([1.0, 0.0]), torch.tensor([[2.0, 5.0], [0.0, 7.0]]), torch.tensor([[10.0], [20.0]])
print("scores: ", (keys @ query).tolist())
print("weights:", [round(weight, 2) for weight in torch.softmax(keys @ query, dim=0).tolist()])
print("answer: ", round(one_head(query, keys, values, 1.0).item(), 1))

# %% [markdown]
# Two things are missing. The tokens are not in a row, they are in pages. And SmolLM2 has 9 query heads and 3 KV heads,
# so three query heads share the keys and values of one KV head. Neighbours share:
#
# ```
# query head   0  1  2    3  4  5    6  7  8
# KV head         0          1          2
# ```
#
# **Now exercise 4.2**, 22 minutes, and three more to break it. Chapter 08 will run on this function. The check is
# strict: before it looks at a number, it fills all slots that are not yours with NaN.

# %%
attend = learner_or_reference("ex-4.2")

prompts = [thanks, "The capital of France is", "One, two, three, four,"]
said = []
for part in ({}, {"attention": as_attention(attend)}):  # minikv's own attention, and then the exercise's
    engine = Engine(model, page_size=SIZE, num_pages=8, allocator=Busy, **part)
    answers = engine.generate(prompts, SamplingParams(max_tokens=8, ignore_eos=True))
    engine.check()
    said.append([answer.token_ids for answer in answers])

for answer in answers:
    print(repr(answer.text))
print("the same as minikv's own:", said[0] == said[1])

# %% [markdown]
# Three requests at once, 30 layers, and every number of every token went through your function. Here is what it reads,
# slot by slot. The call is the one that we noted. The slider asks the same function with other numbers of written
# tokens. (The slider needs Jupyter. The table shows the real call.)

# %%
HOW_FAR = (31, 32, 33, 36, 37, 38, 47, 48)
read_map([reads(attend, call, written) for written in HOW_FAR], show=37)

# %% [markdown]
# ## One line
#
# Pages are lent whole. It is easy to read them whole too: gather all pages of the table, and attend. At the end of 4.2
# you made this mistake on purpose. Here it is again: your function, told that everything reserved is written. It is one
# line, and it looks harmless.


# %%
def whole_pages(query, keys, values, table, written, scale):
    everything = len(table) * keys.shape[1]  # this line
    return attend(query, keys, values, table, everything, scale)


read_map([reads(whole_pages, call, written) for written in HOW_FAR], show=37)

# %% [markdown]
# Eleven slots too many with 37 tokens, and none with 48. The pool is fresh: nobody was here before, and these eleven
# slots hold zeros. What can zeros do?
#
# The model's last result is a list of numbers, one for each token that there is: the **logits**. The token with the
# largest one is the next word.

# %%
predict("p-4.3", ...)

# %% [markdown]
# The word after ` forward`, three times: with your function, with whole pages on a fresh pool, and with whole pages on
# a pool that Ada's letter went through before.


# %% tags=["answers-prediction"]
def after_forward(function, before=None):
    """The logits after 37 written tokens, and 16 words of answer."""
    logits = []

    def note(row, request):
        logits.append(row.clone())
        return sample(row, request)

    part = as_attention(function, prompts=False)  # the prompt itself is read by minikv, so that only new words differ
    engine = Engine(model, page_size=SIZE, num_pages=6, attention=part, sampler=note)
    if before:
        engine.generate([before], SamplingParams(max_tokens=1))
        logits.clear()
    answer = engine.generate([thanks], SamplingParams(max_tokens=16, ignore_eos=True))[0]
    return logits[1], answer.text


runs = {
    "37 slots": after_forward(attend),
    "48 slots, 11 of them zeros": after_forward(whole_pages),
    "48 slots, 11 of them Ada's": after_forward(whole_pages, before=letter),
}
for name, (logits, text) in runs.items():
    change = (logits - runs["37 slots"][0]).abs().max().item()
    print(f"{name:27} largest change of a logit {change:.1f}, next word {model.decode([int(logits.argmax())])!r}")
    print(f"{'':27} {text!r}")
reveal("p-4.3")

# %% [markdown]
# The word stays. Whoever looks only at that sees nothing. Later the three texts part, and each of them reads well.
# Nothing looks broken, and there was no error.
#
# So *the same words* is a weak test of a function that reads. You know the strong one: NaN into everything that must
# not be read. `as_attention` can do that inside the engine.

# %%
for function in (attend, whole_pages):
    engine = Engine(model, page_size=SIZE, num_pages=6, attention=as_attention(function, poison=True, prompts=False))
    answer = engine.generate([thanks], SamplingParams(max_tokens=6, ignore_eos=True))[0]
    print(f"{function.__name__:11}", answer.error or repr(answer.text))

# %% [markdown]
# Remember that one line. You will meet it again in chapter 08.

# %% [markdown]
# ## Without the copy
#
# Your function gathers: it copies the keys and values of the request into one row, for each new word, in each layer.
# How much is that?

# %%
for tokens in (37, 2_000, 100_000):
    copied = bytes_written(call) // call.written * tokens * len(model.geometry.layers)
    print(f"{tokens:7,} tokens: {copied / 1e6:8,.1f} MB copied for each new word")

# %% [markdown]
# So real engines do not gather. They go from page to page and read each where it lies. There is one difficulty: the
# softmax wants the sum over *all* tokens, and we see one page at a time.

# %%
predict("p-4.4", ...)

# %% [markdown]
# Let us do it by hand. One head, and a value is one number. To keep it easy, we take 2 to the power of the score in
# place of exp; everything else is the same.
#
# | page | score | weight, 2 to the power of the score | value | weight × value |
# |---|---|---|---|---|
# | A | 3 | 8 | 10 | 80 |
# | A | 1 | 2 | 20 | 40 |
# | B | 4 | 16 | 30 | 480 |
# | B | 2 | 4 | 60 | 240 |

# %% tags=["answers-prediction"]
pages = {"A": ([3, 1], [10, 20]), "B": ([4, 2], [30, 60])}
total_weight = total_sum = 0.0
for name, (scores, numbers) in pages.items():
    weight = sum(2**score for score in scores)
    weighted = sum(2**score * number for score, number in zip(scores, numbers, strict=True))
    print(f"page {name}: weight {weight:2}, weighted sum {weighted:3}, answer of its own {weighted / weight:.0f}")
    total_weight, total_sum = total_weight + weight, total_sum + weighted
print(f"both:   weight {total_weight:.0f}, weighted sum {total_sum:.0f}, answer {total_sum / total_weight:.0f}")
reveal("p-4.4")

# %% [markdown]
# 28, not 24. Page B has twice the weight of page A. So it will not do to keep the answer of a page. Keep **two**
# numbers: the weight and the weighted sum. Both can be added up, page after page, and at the very end one is divided by
# the other.
#
# One thing is still in the way. Real scores can be large, and exp of 100 is more than a float32 holds. The way out:
# never take the score itself, take *how far it is from the largest score so far*. That is never above 0, and so no
# weight is above one. All weights shrink by the same factor, and the division at the end undoes it.
#
# | | largest so far | weight | weighted sum | answer |
# |---|---|---|---|---|
# | page A, measured from 3: weights 1 and 1/4 | 3 | 1.25 | 15 | 12 |
# | page B, measured from 4: weights 1 and 1/4 | 4 | 1.25 | 45 | 36 |
#
# May we add these? Try: 1.25 + 1.25 and 15 + 45 give 60 / 2.5 = 24. Wrong again, and it is the mean again. The two rows
# are measured from different scores, like prices in two currencies. The largest so far has risen from 3 to 4. Measured
# from 4, everything in page A is smaller by 2 to the power of (3 - 4), that is, by half:
#
# | | largest so far | weight | weighted sum | answer |
# |---|---|---|---|---|
# | page A, now measured from 4 | 4 | 0.625 | 7.5 | 12 |
# | page B | 4 | 1.25 | 45 | 36 |
# | both | 4 | 1.875 | 52.5 | **28** |
#
# Now you. Page C has one token, with the score 5 and the value 12.5. Which three numbers do you have after it, and what
# is the answer?
#
# <details><summary>When you have written it down</summary>
#
# The largest so far rises from 4 to 5, so what you kept is halved: weight 0.9375, weighted sum 26.25. Page C, measured
# from 5, has the weight 1 and the weighted sum 12.5. Together: 5, 1.9375, 38.75, and the answer is 20. The next cell
# has the same without any trick.
#
# </details>

# %%
total_weight, total_sum = total_weight + 2**5, total_sum + 2**5 * 12.5
print(f"all three: weight {total_weight:.0f}, weighted sum {total_sum:.0f}, answer {total_sum / total_weight:.0f}")
print("38.75 / 1.9375 =", 38.75 / 1.9375)

# %% [markdown]
# If page C had had the score 2, nothing would have been halved: the largest so far would have stayed 4.
#
# **Now exercise 4.3**, 40 minutes: the same with exp, with rows of numbers for values, and for each query head by
# itself. It is the hardest piece of this chapter. Stuck for 15 minutes? Go on here; the reference takes over, and
# nothing later depends on it.

# %%
attend_by_page = learner_or_reference("ex-4.3")

difference = (call.answer(attend_by_page) - call.answer(attend)).abs().max().item()
print("the two functions agree:", difference < 1e-4)
print(read_map([reads(attend_by_page, call)]).text)

# %% [markdown]
# Both functions fit into the same place in the engine. And so do your allocator and your attention together:

# %%
parts = my_parts("allocator", "attention")
engine = Engine(model, page_size=SIZE, num_pages=8, **parts)
answers = engine.generate(prompts, SamplingParams(max_tokens=8, ignore_eos=True))
print("\nthe same as minikv's own:", [answer.token_ids for answer in answers] == said[0])

# %% [markdown]
# To carry a softmax along in a few numbers is known as *online softmax* (Milakov and Gimelshein,
# [arXiv:1805.02867](https://arxiv.org/abs/1805.02867), 2018), and FlashAttention rests on it
# ([arXiv:2205.14135](https://arxiv.org/abs/2205.14135), 2022). Reading through page tables comes from vLLM
# ([arXiv:2309.06180](https://arxiv.org/abs/2309.06180), 2023). Your function does both, one page at a time. A graphics
# card does it for many pages at once.

# %% [markdown]
# ## What many believe
#
# | Many believe | What you saw |
# |---|---|
# | Pages must be read in their order. | The full pages stood the other way round, and not a word changed. |
# | A slot with zeros counts for nothing. | A score of 0 has the weight exp(0) = 1. Logits moved by more than 3. |
# | What is reserved may be read. | 48 reserved, 37 written. The other eleven belong to whoever wrote them. |
# | The same words come out, so it is right. | The next word was the same three times. NaN showed the difference. |

# %% [markdown]
# ## Three questions
#
# **1. Somebody tests `whole_pages` by itself, with random numbers. Pages have 16 slots. The test has three cases: 16
# tokens written in one page, 32 in two, 48 in three. What does it say?**
#
# <details><summary>it fails: the function reads too much</summary>
#
# In these three cases it does not. The last page is full each time, so reserved and written are the same number.
#
# </details>
# <details><summary>it passes, and could not have failed</summary>
#
# Yes. Put the slider of the second picture at 48: behind the last token there is no slot left to read. A test of a
# function that reads needs a page that is not full, and something in it that shows.
#
# </details>
# <details><summary>it passes, because random numbers even out</summary>
#
# They do not. With 37 tokens the same test would show a large difference. But here there is no slot too many.
#
# </details>
#
# **2. You hide the slots behind the last one: they get the weight 0, and then all 48 values are added up with their
# weights. Is that as good as not reading them?**
#
# <details><summary>yes, 0 times anything is 0</summary>
#
# 0 times NaN is NaN, and 0 times infinity too. One such slot, left by somebody else, and your answer is gone.
#
# </details>
# <details><summary>yes, as long as all numbers in the pool are ordinary ones</summary>
#
# That is true. But who says so? It is a promise about what strangers leave in your pages. And it costs time: you read
# 11 slots in order to throw them away.
#
# </details>
# <details><summary>no: what lies there can still change the answer</summary>
#
# Yes. The rule is: bytes behind the last written slot cannot change a bit of the answer, whatever they are. The check
# of 4.2 holds you to that.
#
# </details>
#
# **3. A model looks back only at the last 100 tokens. A request has 200, in full pages. You turn the pages in its table
# the other way round. Is the answer the same?**
#
# <details><summary>yes, a key carries its position</summary>
#
# It does, and the scores would be the same. But for *which* tokens? This model counts back from the end of the table.
#
# </details>
# <details><summary>no, it now looks at other tokens</summary>
#
# Yes. The 100 tokens that come last in the table are not the last 100 of the text any more. Here the order of the table
# carries meaning.
#
# </details>
# <details><summary>no, the engine would notice and stop</summary>
#
# Not by itself. The pages are the request's own, and all slots are written. The numbers are fine, and the answer is
# another one.
#
# </details>

# %% [markdown]
# ## If you want more
#
# *Stretch, at the end of the exercise notebook:* count the bytes of keys and values that your function reads, copies
# included, for each byte that is written. Target: at most 1.05.
#
# If you know Triton: an attention kernel on a GPU is exercise 4.3 with the loop on the device. That is planned as
# chapter 14, an elective.

# %% [markdown]
# ## In your own words
#
# One sentence, for yourself: how does attention find its tokens, and what tells it where to stop?

# %%
my_sentence = "..."

# %% [markdown]
# ## The story so far
#
# | step | The incident, as the article tells it | state |
# |---|---|---|
# | 1 | Somebody sends a prompt that is longer than the pool of the machine that reads prompts. | I can explain this |
# | 2 | The server does not turn it away. It puts a stand-in of one token in its place. | not yet |
# | 3 | The next part asks only whether that request is over. It is, so it may pass. | not yet: chapter 09 checks it |
# | 4 | A second machine makes room for 8 pages. It is sent one. | not yet |
# | 5 | It reads all 8. In 7 of them lies what strangers wrote before. | not yet: *why* it reads them is open |
#
# But you have seen what step 5 looks like from inside: no error, and a text that reads well. And you know the number
# that would have to be wrong.
#
# Next: your function answers for one token. A server has many people waiting. Who runs next?
#
# Go on with [notebooks/05_prefill_decode_batch.ipynb](05_prefill_decode_batch.ipynb).

# %%
surprises(4)

# %%
print("chapter 04: done")
