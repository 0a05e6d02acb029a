# %% [markdown]
# # 03 Pages
#
# **Why lend pages, and what is in a page when you get it?**
#
# When you are through, you can
#
# * **lend**: write the part of a serving engine that hands out memory, and run a real model on it;
# * **tell apart** who holds a piece of memory and who wrote what is in it;
# * **read** memory that was given back, and see text in it.
#
# You need: Python with a class and a list. You have seen an array. About 80 minutes, 45 of them in
# [exercises/03_pages.ipynb](../exercises/03_pages.ipynb).
#
# In a hurry, 30 minutes: read the five words (*slot, page, pool, lend, owner*), run all cells down to *What is in a
# page when you get it?*, begin there, and do only exercise 3.3.

# %% [markdown]
# ## Two questions from before
#
# One minute each, without looking anything up:
#
# 1. Why may the model keep a token's key and value when more text follows?
# 2. SmolLM2 has 30 layers. In each, a key has 3 heads of 64 numbers, and so has a value. A number takes 4 bytes. How
#    many bytes is one token?
#
# <details><summary>Answers</summary>
#
# 1. A token never looks ahead. What follows cannot change it, so computing it again would give the same numbers.
# 2. 30 × 2 × 3 × 64 × 4. The cell below asks the model itself.
#
# </details>
#
# <details><summary>You are on the short path and have not read 01 and 02? Six words</summary>
#
# To write the next token, a model looks back at every earlier one. For each token, in each layer, it keeps two short
# rows of numbers, a key and a value.
#
# | word | means |
# |---|---|
# | token | a piece of text, often a word; the model reads and writes tokens |
# | layer | one of the stages that every token goes through, one after the other |
# | head | a part of a layer that works by itself, with numbers of its own |
# | attention | the step in which a token looks at the earlier ones and takes something from each |
# | key | a row of numbers by which a token is found in that step |
# | value | a row of numbers that is taken from a token in that step |
#
# </details>

# %%
import torch

from minikv import Engine, KVGeometry, SamplingParams, load_model
from minikv.course import learner_or_reference, predict, reveal, surprises
from minikv.memory import PagePool
from minikv.models.geometry import LayerGeometry
from minikv.trace import Allocate, Trace
from minikv.viz import page_map

torch.set_grad_enabled(False)
model = load_model("smollm2")
print(f"one token: {model.geometry.bytes_per_token(model.dtype):,} bytes of keys and values")

# %% [markdown]
# ## One block each, or pages?
#
# Five words, and then a bet.
#
# * A **slot** is room for one token's keys and values, in all layers.
# * A **page** is a few slots in a row.
# * The **pool** is all pages. It is made once, when the server starts, and never grows.
# * To **lend** a page is to let one request use it for as long as that request runs. For that long, the request is the
#   page's **owner**.
#
# A server never knows how long an answer will be. It knows what the request announced: at most 128 tokens, say. One way
# is to give each request one block of 128 slots. The other is to lend a page when a token needs it, and not before.
#
# Run the cell to see the question. Then put a letter in quotation marks, such as `"B"`, in place of `...`, add
# `sure=True` if you are, and run it again. Nobody scores it.

# %%
predict("p-3.1", ...)

# %% [markdown]
# The next cell plays both. `TOY` stands for a model so small that a key is one number and so is a value, so that we
# can look inside. A block of 128 slots is nothing but a very large page.

# %% tags=["answers-prediction"]
TOY = KVGeometry((LayerGeometry(kv_heads=1, key_dim=1, value_dim=1),))


def running_at_once(page_size):
    """Requests of 30 tokens that get a page whenever they need one, until no page is left."""
    pool = PagePool(TOY, num_pages=448 // page_size, page_size=page_size)
    for request in range(448):
        held = pool.lend(request, 0)
        for token in range(30):
            if token == held.allocated:  # all its slots are used
                if pool.num_free == 0:
                    return request
                pool.extend(held, 1)


print("one block of 128 each:", running_at_once(128))
print("pages of 16:          ", running_at_once(16))
reveal("p-3.1")

# %% [markdown]
# More than four times as many, on the same memory. This is why serving engines lend pages.
#
# But what if all 14 go on to their full 128 tokens? Then the pool runs dry in the middle of 14 answers. A careful
# server would start only as many as it can hold to the end. minikv takes the risk. The next cell does it both ways,
# with a model that says nonsense, but quickly.

# %%
toy_model = load_model("tiny-random")
to_the_end = SamplingParams(max_tokens=128 - 30, ignore_eos=True)  # all that was announced
said = []
for way, at_once in (("careful: ", 448 // 128), ("at risk: ", 14)):
    engine = Engine(toy_model, page_size=16, num_pages=448 // 16, max_batch_size=at_once)
    answers = engine.generate([[7 + i] * 30 for i in range(14)], to_the_end)
    said.append([answer.token_ids for answer in answers])
    node = engine.stats().nodes[0]
    print(way, at_once, "at once,", node.steps, "steps,", node.tokens, "tokens computed,", end=" ")
    print("pages given back before the end:", node.preemptions, "times")
print("the same answers:", said[0] == said[1])

# %% [markdown]
# (In a step the engine computes something for each request that runs.) The careful server needs more steps. minikv
# starts all 14. Whenever no page is free, the request that joined last
# gives its pages back, waits, and is computed again. It is through earlier, but computes many tokens twice. So if
# everybody uses all that was announced, pages buy little. They pay because most requests do not. Chapter 05 is about
# that choice.
#
# **Now exercise 3.1** in [exercises/03_pages.ipynb](../exercises/03_pages.ipynb), 5 minutes. Then come back: the next
# cell uses your function.
#
# Before you run the next cell: are large pages better than small ones?

# %% tags=["answers-prediction"]
pages_and_empty = learner_or_reference("ex-3.1")
lengths = [30, 7, 112, 64, 5, 251, 18, 90]

print(f"\n{sum(lengths)} tokens of {len(lengths)} requests\n")
print("page size   pages lent   slots left empty")
for page_size in (1, 4, 16, 64, 256):
    each = [pages_and_empty(length, page_size) for length in lengths]
    pages, empty = sum(pages for pages, _ in each), sum(empty for _, empty in each)
    print(f"{page_size:9}   {pages:10}   {empty:6}  {empty / (pages * page_size):4.0%}")

# %% [markdown]
# Neither small nor large is best. Every page that is lent must be remembered, so small pages make long lists. Large
# pages stay empty at the end of each request. minikv takes 16 slots unless you say otherwise.

# %% [markdown]
# ## The part that lends
#
# Somebody must choose *which* page is lent next. That part is small. It never sees a key or a value, only page numbers:
#
# * `Allocator(num_pages)`: in the beginning all pages, 0 to `num_pages - 1`, are free.
# * `allocate(n)` gives `n` free pages, in a list or another collection. If fewer are free it raises, and lends none.
# * `free(pages)` takes pages back. It raises for a page that is not lent.
#
# Here is one that does half the job, inside the real engine. It hands out new pages and never uses one again.


# %%
class OnlyNewPages:
    def __init__(self, num_pages):
        self.num_pages = num_pages
        self.next = 0

    def allocate(self, n):
        if self.next + n > self.num_pages:
            raise MemoryError(f"page {self.num_pages - 1} was the last one")
        self.next += n
        return list(range(self.next - n, self.next))

    def free(self, pages):
        pass


engine = Engine(model, page_size=4, num_pages=4, allocator=OnlyNewPages)
for _turn in range(3):
    answer = engine.generate(["The capital of France is"], SamplingParams(max_tokens=2))[0]
    print(repr(answer.text), answer.error or "")

# %% [markdown]
# Two answers, and then the server is useless: nobody uses its memory, and nobody can get any.
#
# **Now exercise 3.2**, 25 minutes: write an allocator that takes pages back. It is the largest piece of work in this
# chapter. If you are stuck for 15 minutes, go on; the cells below then use a reference and say so.

# %% [markdown]
# Your allocator, inside the engine, with the real model. Four requests share a pool that is too small for all of them
# at once, so pages must come back and go out again.

# %%
Allocator = learner_or_reference("ex-3.2")
prompts = [
    "The capital of France is",
    "One, two, three, four,",
    "Monday, Tuesday, Wednesday,",
    "A page is lent to one request after another, as a library lends a book to one reader after another.",
]
texts = []
for whose, parts in (("minikv's own", {}), ("the exercise's", {"allocator": Allocator})):
    engine = Engine(model, page_size=4, num_pages=9, **parts)
    answers = engine.generate(prompts, SamplingParams(max_tokens=6, ignore_eos=True))
    engine.check()
    texts.append([answer.text for answer in answers])
    lent = [event.page for event in engine.trace if isinstance(event, Allocate)]
    print(f"{whose}: {len(lent)} times a page was lent, out of a pool of 9, in this order: {lent}")

print("answers equal:", texts[0] == texts[1])
print("the first one:", repr(texts[1][0]))

# %% [markdown]
# The lists may differ; the answers do not. The engine does not care which page it gets. It cares that nobody else
# has it.

# %% [markdown]
# ## What is in a page when you get it?
#
# Ada's request ends. Her pages go back, and Ben's request gets them. Then Ben writes six tokens.

# %%
predict("p-3.2", ...)

# %% [markdown]
# A pool of four pages with four slots each. Ada's tokens are all the number 7, so we know hers when we see them.

# %% tags=["answers-prediction"]
ADA, BEN = 1, 2
trace = Trace()
pool = PagePool(TOY, num_pages=4, page_size=4, allocator=Allocator, trace=trace)


def write(held, start, stop, number):
    """Fill the slots of tokens start to stop - 1 with one number."""
    slots = torch.from_numpy(pool.begin_write(held, start, stop))
    numbers = torch.full((stop - start, 1, 1), float(number))
    pool.store(0, slots, numbers, numbers)


trace.step = 1
adas = pool.lend(ADA, 4)
write(adas, 0, 16, 7)
trace.step = 2
pool.free(adas)
trace.step = 3
bens = pool.lend(BEN, 4)

print("page 3 holds", pool.values[0][3].flatten().tolist())

# %% [markdown]
# So there are two questions about a page. Who holds it now? Its **owner**. Who wrote what is in a slot? That slot's
# **writer**. Below is this very run: the owner above, and below it who wrote most of the page. Move the slider to
# see how it came about. (The slider needs Jupyter.)
#
# The table says the same, and how many slots of a page each writer filled.

# %% tags=["answers-prediction"]
names = {ADA: "Ada", BEN: "Ben"}
rows = ("owner", "wrote most", "slots written by")
page_map(trace, names=names, rows=rows)

# %% [markdown]
# Four pages where the letters disagree. That is normal: it is so from the moment a page is lent on until its new owner
# has written over it. Now Ben writes six tokens.

# %% tags=["answers-prediction"]
trace.step = 4
write(bens, 0, 6, 5)
print(page_map(trace, names=names, rows=rows).text)
print()
for page in bens.pages:
    print("page", page, "holds", pool.values[0][page].flatten().tolist())
reveal("p-3.2")

# %% [markdown]
# Look at Ben's second page: two of his tokens, two of hers. **The owner is not the writer.** A page has one owner, and
# each of its slots has a writer of its own. What keeps Ben from reading Ada's slots is one number: how far he has
# written. The contents give no warning. To attention, a five is as good as a seven. (What happens when that one number
# is wrong is what this course is about. minikv also keeps a record of who wrote each slot, and
# refuses to read what others wrote. The server of chapter 08 did not.)

# %% [markdown]
# ## Can you read it?
#
# Sevens are easy to spot. A real page is a heap of small numbers. So now the real model: Ada sends it a letter. Then
# her request ends, and every page is free.

# %%
letter = (
    "Dear Mrs. Okafor, I am away until Sunday. The spare key is under the third flowerpot, and the alarm code is "
    "4471. Please feed Biscuit twice a day, and do not tell my brother Leon that I am in Lisbon. He thinks that I am "
    "at work, and I would like it to stay that way."
)
ids = model.encode(letter)
pages, empty = pages_and_empty(len(ids), 16)
engine = Engine(model, page_size=16, num_pages=pages, allocator=Allocator)
engine.generate([letter], SamplingParams(max_tokens=empty, ignore_eos=True))

adas_pages = [event.page for event in engine.trace if isinstance(event, Allocate)]
print("pages that were Ada's:", adas_pages)
print("free pages now:       ", engine.pool.num_free, "of", engine.pool.num_pages)

page = adas_pages[1]
count = sum(tensor[page].numel() for tensor in (*engine.pool.keys, *engine.pool.values))
start = engine.pool.values[0][page].flatten()[:8].tolist()
print(f"numbers in page {page}:     {count:,}, such as", ", ".join(f"{number:.2f}" for number in start))

# %%
predict("p-3.3", ...)

# %% [markdown]
# A hint from the numbers themselves. The word ` and` stands in the letter more than once. We compare its numbers at two
# places.

# %%
word = model.encode(" and")[0]
first, second = [position for position, token in enumerate(ids) if token == word][:2]
last = len(engine.pool.values) - 1


def stored(tensors, layer, position):
    return tensors[layer][adas_pages[position // 16], position % 16].flatten()


print(f"the same word at positions {first} and {second}")
for name, tensors, layer in (
    ("key,  ", engine.pool.keys, 0),
    ("value,", engine.pool.values, 0),
    ("value,", engine.pool.values, last),
):
    same = torch.allclose(stored(tensors, layer, first), stored(tensors, layer, second), atol=1e-4)
    print(f"{name} layer {layer:2}:", "the same numbers" if same else "different numbers")

# %% [markdown]
# Position is built into a key: its numbers are rotated by an angle that depends on where the token stands. So it
# differs from place to place. A deeper value has already mixed in the tokens before it. But a value of layer 0 knows
# neither its place nor its neighbours. It is made from the token alone.
#
# What can be done with that? **Now exercise 3.3**, 15 minutes, four lines.

# %% tags=["answers-prediction"]
read_page = learner_or_reference("ex-3.3")

found = []
for page in adas_pages:
    tokens = read_page(engine.pool, page, model.hf)
    print(f"page {page}: {model.decode(tokens)!r}")
    found += tokens
right = sum(a == b for a, b in zip(found, ids, strict=False))
print(f"\n{right} of {len(ids)} tokens of the letter found")

# %% [markdown]
# Nobody ran the model. There was no prompt, no attention and no answer: only the embeddings, one norm, one matrix, and
# a search for the nearest row. Every page was free, and this is what free pages hold. You read the server's memory
# directly, which an outsider cannot. Chapter 08 shows who reads it for them.
#
# The last page goes on into what the model answered. Its very last slot was never written (the last token of an answer
# is never read again, so it is never stored). It holds zeros, and some token has to be the nearest to zero.
#
# Do the numbers have to be exact? Round every stored number to one of 16 levels. That is 4 bits in place of 32.

# %% tags=["answers-prediction"]
from copy import copy

LEVELS = 16
exact = engine.pool.values[0]
low, high = exact.min(), exact.max()
steps = ((exact - low) / (high - low) * (LEVELS - 1)).round()
rounded = copy(engine.pool)  # the same pool in everything but the values of layer 0
rounded.values = [steps / (LEVELS - 1) * (high - low) + low, *engine.pool.values[1:]]

print(f"at most {LEVELS} different numbers are left:", rounded.values[0].unique().numel() <= LEVELS)
found = [token for page in adas_pages for token in read_page(rounded, page, model.hf)]
print(sum(a == b for a, b in zip(found, ids, strict=False)), "of", len(ids), "tokens found")
print(repr(model.decode(found[16:32])))
reveal("p-3.3")

# %% [markdown]
# All of them. 3 heads of 64 numbers are far more than it takes to tell one token from another. (Try `LEVELS = 8`, and
# then 4, where it ends.)
#
# Such a look-up is the simplest kind of *inversion*. Luo and others, *Shadow in the Cache*
# ([arXiv:2508.09442](https://arxiv.org/abs/2508.09442), 2025), study three attacks on stored keys and values, and a
# defence that scrambles them in a way that can be undone. Our short way works for models that rotate keys by position,
# as SmolLM2, Llama and Qwen do. GPT-2 adds the position to the token before layer 0, so there you would search over
# positions too.

# %% [markdown]
# Now Ben. The pool has only the pages that were Ada's, so he must get one of them.

# %% tags=["answers-prediction"]
question = "The capital of France is"
answer = engine.generate([question], SamplingParams(max_tokens=6, ignore_eos=True))[0]
bens_page = [event.page for event in engine.trace if isinstance(event, Allocate)][len(adas_pages)]

print("what Ben saw:   ", repr(question + answer.text))
print(f"what page {bens_page} holds:", repr(model.decode(read_page(engine.pool, bens_page, model.hf))))

# %%
page_map(engine.trace, names={0: "Ada", 1: "Ben"}, rows=rows)

# %% [markdown]
# Ben's answer is right, and not a word in it is Ada's. The engine read the slots that Ben had written and stopped
# there. The next slot of his own page holds a word of Ada's page: see above.

# %% [markdown]
# ## What many believe
#
# | Many believe | What you saw |
# |---|---|
# | Giving memory back clears it. | Page 3 still held the sevens. One list had changed, no number in the page. |
# | Vectors are not text. | Every token of the letter came back, by looking up the nearest row. |
# | Whoever holds a page has written it. | Ben's page: his words, and then hers. |
# | Larger pages are better. | With 256 slots a page, most slots stayed empty. |

# %% [markdown]
# ## Three questions
#
# **1. SmolLM2 has 30 layers. A request holds 6 pages. How many lists of page numbers does the engine keep for it?**
#
# <details><summary>one</summary>
#
# Yes. A page is a row in the tensors of *every* layer. Page 4 means row 4 everywhere, so one list is enough.
#
# </details>
# <details><summary>30, one for each layer</summary>
#
# The layers have tensors of their own, but all of them are cut into pages in the same way. 30 equal lists would say the
# same thing 30 times.
#
# </details>
# <details><summary>60, for the keys and for the values of each layer</summary>
#
# A token's key and value are written together and given up together. They share their page number.
#
# </details>
#
# **2. Ada's request frees page 5. Page 5 is lent to Ben. By mistake, Ada's side frees page 5 once more. Does your
# allocator notice?**
#
# <details><summary>yes, it raises for a page that is not lent</summary>
#
# But page 5 *is* lent: to Ben. An allocator that knows only page numbers sees a lent page come back, and takes it.
#
# </details>
# <details><summary>no, and Ben loses his page while he uses it</summary>
#
# Yes. Your check is good and not enough. Somebody must also know *whose* page it is. In minikv the pool does: it
# compares the owner before it asks the allocator.
#
# </details>
# <details><summary>it cannot happen, since Ada has ended</summary>
#
# It happens when two parts both believe that the cleaning up is theirs: one because the answer is done, the other
# because the caller hung up.
#
# </details>
#
# **3. Of all free pages you lend the one that has been free for the longest time. Is Ada's letter safer than if you
# lend the page that came back last?**
#
# <details><summary>yes, it takes longer until somebody gets her pages</summary>
#
# It does take longer. All that time her letter lies there, whole. And then somebody gets it.
#
# </details>
# <details><summary>no, the order only decides who gets it, and when</summary>
#
# Yes. An order of lending is no protection. It even keeps old text longer, since nothing is written over it.
#
# </details>
# <details><summary>yes, numbers fade when they are not used</summary>
#
# Memory under power does not fade. It holds what was written last.
#
# </details>

# %% [markdown]
# ## If you want more
#
# *Stretch, at the end of the exercise notebook:* lending and taking back one page should cost the same in a pool of
# 1,000,000 pages as in one of 1,000. Target: a ratio of at most 1.5.

# %% [markdown]
# ## In your own words
#
# One sentence, for yourself: what is in a page when you get it, and why is that usually no harm?

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
# But you know what lies in those seven pages, and that it can be read.
#
# Next: Ada's pages can lie anywhere in the pool. How does attention find her tokens, and where must it stop?
#
# Go on with [notebooks/04_reading_through_a_page_table.ipynb](04_reading_through_a_page_table.ipynb).
#
# On the short path (00, 03, 08)? Go on with [notebooks/08_seven_stale_pages.ipynb](08_seven_stale_pages.ipynb).

# %%
surprises(3)

# %%
print("chapter 03: done")
