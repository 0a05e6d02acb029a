# %% [markdown]
# # 05 Prefill, decode, batch
#
# **Who runs next when everybody shares the machine?**
#
# This is the longest chapter, and the others do not wait for it. If it becomes too much, take the reference and go on
# to 06: every cell below runs without your part, and says so.
#
# When you are through, you can
#
# * **tell apart** the two kinds of work that a request brings, by two numbers;
# * **plan**: write the part of a serving engine that decides who is computed next;
# * **compare** plans by what people notice: when the first word comes, and how long an answer stands still.
#
# You need: pages that are lent (chapter 03), and the word *written* (chapter 04). About 90 minutes, 36 of them in
# [exercises/05_prefill_decode_batch.ipynb](../exercises/05_prefill_decode_batch.ipynb).
#
# In a hurry, 35 minutes: make the first two predictions, do exercise 5.1 and not 5.2, and look at *The same five
# requests, three plans*.

# %% [markdown]
# ## Two questions from before
#
# One minute each, without looking anything up:
#
# 1. A request holds three pages of 16 slots and has written 37. How many slots does attention read for it? (04)
# 2. 20 tokens after a prompt of 200: without a cache, 4,190 rows go through the model. How many with one, and why? (01)
#
# <details><summary>Answers</summary>
#
# 1. 37. What is only reserved is not read.
# 2. 219. The prompt goes through once, that is 200 rows, and the first token comes out. Each of the other 19 needs one
#    more row: its newest token.
#
# </details>

# %%
import time

import torch

from minikv import Engine, SamplingParams, load_model
from minikv.course import learner_or_reference, predict, reveal, surprises
from minikv.course.chapters.ch05 import Request, Visit, plan_static, play
from minikv.course.seats.scheduler import as_scheduler
from minikv.viz.lanes import lanes, run_of
from minikv.viz.lanes_panel import lanes_panel

torch.set_grad_enabled(False)
model = load_model("smollm2")


def exactly(tokens):
    """Ask for an answer of so many tokens."""
    return SamplingParams(max_tokens=tokens, ignore_eos=True)


# %% [markdown]
# ## Eight users, one step
#
# An engine works in **steps**. In a step, some tokens go through the model once, side by side, and each request that is
# in it gets on a little. Requests that share a step are a **batch**.

# %%
predict("p-5.1", ...)

# %% [markdown]
# A question of time, so we must measure. Times differ from machine to machine and from minute to minute; the cell shows
# only how many times as long. (You need not read how it measures. It takes the fastest of five steps of each kind.)

# %% tags=["answers-prediction", "nbval-ignore-output"]
BATCHES = {"1 user": (1, 0), "8 users": (8, 0), "8 users and 248 tokens of a prompt": (8, 248)}
engines, fastest = {}, dict.fromkeys(BATCHES, 1e9)
for batch, (users, _prompt) in BATCHES.items():
    engines[batch] = Engine(model, page_size=16, num_pages=100)
    for user in range(users):
        engines[batch].submit([100 + user] * 32, exactly(40))
    engines[batch].step()
for _round in range(5):  # in turn, so that a busy machine slows down all of them
    for batch, (_users, prompt) in BATCHES.items():
        if prompt:
            engines[batch].submit([7] * prompt, exactly(1))
        began = time.perf_counter()
        engines[batch].step()
        fastest[batch] = min(fastest[batch], time.perf_counter() - began)

for batch, (users, prompt) in list(BATCHES.items())[1:]:
    times = fastest[batch] / fastest["1 user"]
    print(f"{batch}: {users + prompt} times as many tokens as with one user, {times:.1f} times as long")

# %% tags=["answers-prediction"]
weights = sum(weight.numel() * weight.element_size() for weight in model.hf.parameters())
token = model.geometry.bytes_per_token(model.dtype)
for batch, users in (("1 user", 1), ("8 users", 8)):
    notes = users * 40 * token
    print(f"{batch}: {weights / 1e6:.0f} MB of weights are read, and {notes / 1e6:.0f} MB of keys and values")
reveal("p-5.1")

# %% [markdown]
# The weights are read once for all. That is why servers put strangers into one step.
#
# It also closes what chapter 01 left open. With the cache 19 times fewer rows went through the model, and the clock
# showed less than that. The reason: 20 steps, and each goes through all weights, for one row as for 200.
#
# But look at the last line of the clock. A few tokens more hardly matter, hundreds do: now it is the tokens that take
# the time. So in this chapter **tokens are our clock**. It is a rough one: 8 tokens do not take 8 times as long as one.
# But the more tokens a step computes, the later it ends, for everybody in it.

# %% [markdown]
# ## Two kinds of work
#
# * **Prefill**: the prompt is there, and all its tokens are computed.
# * **Decode**: one token is computed, the newest, so that the next one comes out.

# %%
predict("p-5.2", ...)

# %% [markdown]
# One request, one step after the other. *Written* positions have a key and a value. *Known* tokens are those of the
# prompt and those of the answer so far.

# %% tags=["answers-prediction"]
engine = Engine(model, page_size=16, num_pages=8)
number = engine.submit("Roses are red, violets are", exactly(5))
request = engine.requests[number]
print("step   computed   written   known   new token")
print(f"   0          -         0   {request.num_tokens:5}")
for step in range(1, 5):
    before = engine.stats().nodes[0].tokens
    engine.step()
    written = engine.pool.tables[number].written
    new = model.decode(request.output_ids[-1:])
    print(f"{step:4}   {engine.stats().nodes[0].tokens - before:8}   {written:7}   {request.num_tokens:5}   {new!r}")
reveal("p-5.2")

# %% [markdown]
# Keep this pair of numbers, you will need it in the next three chapters: **the newest token has no key yet**. What a
# request misses is `known - written`. That is all that a planner has to know: it misses 9, or 1.
#
# Note where the first token of the answer came from: the step that read the prompt.

# %% [markdown]
# ## Who goes into the step?
#
# A **budget** says how many tokens a step computes at most, of all requests together. Who gets them is decided before
# each step, by a part that sees no key, no value and no word. It only counts. So we can try it on requests that only
# count, and they take no time at all:

# %%
print(Request("R1", known=9, written=0), "has not started; it misses 9")
print(Request("R2", known=14, written=13), "gets its answer; it misses 1")

# %% [markdown]
# A plan is a list of pairs: a request, and how many tokens it gets in this step. Here is the simplest plan. One at a
# time, first come, first served:


# %%
def plan_one(waiting, running, budget):
    """Whoever runs; if nobody does, whoever waits first."""
    if running:
        return [(running[0], 1)]
    return [(waiting[0], waiting[0].known)]


# %% [markdown]
# `play` plays it with five counting requests. For each you see the name, the tokens of prompt and answer, and the step
# in which it comes.

# %%
FIVE = [
    Visit("R1", prompt=4, answer=6, arrives=1),
    Visit("R2", prompt=3, answer=12, arrives=1),
    Visit("R3", prompt=5, answer=4, arrives=1),
    Visit("R4", prompt=20, answer=4, arrives=5),
    Visit("R5", prompt=3, answer=5, arrives=6),
]
print(lanes(play(plan_one, FIVE, budget=24)).text)

# %% [markdown]
# R5 waits for most of the run, while a step computes one token out of 24 that it could. We can do better.
#
# **Now exercise 5.1** in [exercises/05_prefill_decode_batch.ipynb](../exercises/05_prefill_decode_batch.ipynb), 18
# minutes. Then come back: the next cell uses your function.

# %%
plan_whole = learner_or_reference("ex-5.1")
print()
print(lanes(play(plan_whole, FIVE, budget=24)).text)

# %% [markdown]
# Nobody waits any more. When R3 leaves, the others go on; when R4 comes, it joins them. This is called *continuous
# batching*, and it is what serving engines do.
#
# But look at the tokens of step 5. R1 and R2 miss one token each, and have to sit through R4's whole prompt.

# %% [markdown]
# ## A long prompt
#
# 20 tokens are nothing. Real prompts have thousands: a contract, a source file, a long conversation.

# %%
predict("p-5.3", ...)

# %% tags=["answers-prediction"]
four = [Visit(name, prompt=6, answer=40) for name in ("Ada", "Ben", "Cleo", "Dan")]
newcomer = Visit("Eve", prompt=2000, answer=6, arrives=10)


def longest_waits(plan, budget):
    """Tokens computed in the longest gap of the four; steps and tokens until Eve's first token."""
    run = run_of(play(plan, [*four, newcomer], budget))
    *readers, eve = run.lanes
    until = newcomer.arrives - 1
    return max(reader.gap_tokens for reader in readers), eve.first, sum(run.tokens[until : until + eve.first])


gap, steps, tokens = longest_waits(plan_whole, budget=4096)
print(
    f"read whole: the four have a gap of {gap:,} tokens. Steps until Eve's first token: {steps}, with {tokens:,} tokens"
)

# %% [markdown]
# And with a budget of 256? A plan of whole prompts has no answer to that. It leaves Eve where she is, and when
# everybody else is gone:

# %%
from minikv.errors import BrokenRule

try:
    play(plan_whole, [*four, newcomer], budget=256)
except BrokenRule as broken:
    print(broken)

# %% [markdown]
# A prompt need not be read in one step. A token looks only at earlier ones, so the first 252 can be computed now (256
# less one for each of the four), and their keys and values kept; the next 252 in the next step will find them. Such a
# piece is a **chunk**. Only the last chunk brings a token out: before that, the question has not been read to its end.
#
# **Now exercise 5.2**, 18 minutes. Then come back.

# %% tags=["answers-prediction"]
plan_step = learner_or_reference("ex-5.2")
print()
for budget in (4096, 1024, 256, 64):
    gap, steps, tokens = longest_waits(plan_step, budget)
    print(f"budget {budget:5,}: the four have a gap of {gap:5,} tokens;", end=" ")
    print(f"steps until Eve's first token: {steps:2}, with {tokens:,} tokens")
reveal("p-5.3")

# %% [markdown]
# The work does not become less. It is even a little more, since the four go on meanwhile. But no answer stands still
# for longer than one step, and the budget says how long that is. Eve pays for it: a small budget lets her wait through
# more steps, and each goes through all weights again.

# %% [markdown]
# ## The same five requests, three plans
#
# Now in the engine, with the real model. `as_scheduler` makes a part of the engine out of your plan. It lends the pages
# for what you plan. If a plan breaks a rule, it says which one, and in which step.
#
# * *static*: fill a batch, and start nobody else until the last one in it is through. This is how models were served
#   at first.
# * *whole prompts*: your plan of 5.1.
# * *chunks*: your plan of 5.2, with a budget of 8. (With the 24 of the others, every prompt here would fit whole.)

# %%
TEXT = model.encode(
    "The library opens at nine. Whoever comes first may choose a seat at the window, and whoever comes last may "
    "have to stand. A book is lent for two weeks."
)


def serve(plan, budget):
    """The five requests in the real engine; a prompt is the first so many tokens of the text."""
    engine = Engine(model, page_size=4, num_pages=64, max_batch_tokens=budget, scheduler=as_scheduler(plan))
    numbers = []
    for step in range(1, 40):
        numbers += [engine.submit(TEXT[: v.prompt], exactly(v.answer)) for v in FIVE if v.arrives == step]
        engine.step()
        engine.check()
    return engine.trace, [engine.result(number).token_ids for number in numbers]


traces, answers = {}, []
for title, plan, budget in (("static", plan_static, 24), ("whole prompts", plan_whole, 24), ("chunks", plan_step, 8)):
    traces[title], said = serve(plan, budget)
    answers.append(said)
print("the same answers under all three plans:", answers[0] == answers[1] == answers[2])

# %% [markdown]
# Below, a lane for each request, drawn from what the engine reported. In the figure a step is as wide as the tokens
# that it computes, so that width is our clock. (The slider needs Jupyter. The table has all three at once.)

# %%
names = [visit.name for visit in FIVE]
lanes(traces, names=names)

# %% [markdown]
# Three things to find:
#
# 1. In *static*, R1 and R3 are soon through. What is done with their places, and for whom does R4 wait?
# 2. In *whole prompts*, which step is so wide, and who sits in it?
# 3. In *chunks*, what did R4 and R5 lose, and what did R1 and R2 gain?
#
# <details><summary>What to see</summary>
#
# 1. Nothing. R2 answers alone, one token a step, and R4 waits for it until step 13.
# 2. Step 5, with R4's prompt of 20 tokens. R1 and R2 sit in it, and get one token each for 22 that are computed.
# 3. R4's first token comes after four steps and not after one, R5's after three. No gap is longer than 8 tokens.
#
# </details>
#
# And the counting requests had told us all of it before:

# %%
counted = run_of(play(plan_step, FIVE, budget=8))
engine_run = run_of(traces["chunks"], names=names)
print("the same lanes in the counting run and in the engine:", counted.lanes == engine_run.lanes)

# %% [markdown]
# ### What if?
#
# R4's prompt now has 40 tokens. Move the budget, and the step in which R4 comes. (Click a slider, or reach it with Tab;
# the arrow keys move it, and the line below says what changed.) Two things to try:
#
# 1. From which budget on does the gap not grow any more? Why?
# 2. With which budgets does R5 wait longest for its first token?


# %%
def what_if(budget, R4_comes_in_step):
    """A run of your plan on counting requests."""
    later = Visit("R4", prompt=40, answer=4, arrives=R4_comes_in_step)
    return play(plan_step, [later if visit.name == "R4" else visit for visit in FIVE], budget)


# %% tags=["live", "nbval-ignore-output"]
lanes_panel(what_if, budget=(4, 64, 8), R4_comes_in_step=(1, 12, 5))

# %% [markdown]
# Without sliders, the same in numbers:

# %%
for budget in (4, 8, 16, 32, 64):
    run = run_of(what_if(budget, 5))
    first = {lane.name: lane.first for lane in run.lanes}
    gap = max(lane.gap_tokens for lane in run.lanes)
    print(f"budget {budget:2}: longest gap {gap:2} tokens; steps until the first token: R4 {first['R4']:2},", end=" ")
    print(f"R5 {first['R5']:2}; {len(run.tokens)} steps in all")

# %% [markdown]
# <details><summary>What to see</summary>
#
# 1. From 42 on, if R4 comes in step 5: its 40 tokens, and one each for R1 and R2. More there is not to compute.
# 2. With the smallest. R5 comes after R4, and R4's prompt takes all that is left in every step.
#
# </details>

# %% [markdown]
# ## Alone and in company
#
# Strangers' tokens go through the model side by side, in one tensor. Does one request see something of another? One
# prompt alone, and then with three others, in chunks of a few tokens:

# %%
prompts = [
    "Roses are red, violets are",
    "Dear Mrs. Okafor, I am away until Sunday. The spare key is under the third flowerpot, and the alarm code is",
    "One, two, three, four,",
    "The first four planets are Mercury, Venus,",
]


def answered(prompts, budget):
    engine = Engine(model, page_size=16, num_pages=40, max_batch_tokens=budget, scheduler=as_scheduler(plan_step))
    return engine.generate(prompts, exactly(8))


alone = answered(prompts[:1], budget=64)[0]
together = answered(prompts, budget=12)
print("alone:     ", repr(alone.text))
print("in company:", repr(together[0].text))
print("the same tokens:", alone.token_ids == together[0].token_ids)

# %% [markdown]
# The same. Each row of the tensor looks back through the pages of its own request, and through no others. Nothing in
# the model itself says so: it is the bookkeeping that keeps them apart. (Their last digits may differ. A sum of many
# numbers depends on the order in which they are added, and that depends on how many rows there are.)

# %% [markdown]
# ## When the pages run out
#
# Chapter 03 left a choice open. A careful server starts only as many as it can hold to the end of all that they
# announced. The other kind starts whoever fits now, and if no page is left, whoever joined last gives its pages back
# and is computed again. `as_scheduler` does the second, unless you ask it to be careful.
#
# The requests of chapter 03, with your plan: 14 requests, each with a prompt of 30 tokens, and each announces an answer
# of 98. First all of them use what they announced. Then most of them stop early. (The code only sets this up. Look at
# the four lines that come out: who needs fewer steps, and what does it cost?)

# %%
toy_model = load_model("tiny-random")
PROMPTS = [[7 + i] * 30 for i in range(14)]


def with_few_pages(careful, wanted):
    part = as_scheduler(plan_step, careful=careful)
    engine = Engine(toy_model, page_size=16, num_pages=28, scheduler=part)
    answers = [answer.token_ids for answer in engine.generate(PROMPTS, wanted)]
    node, still = engine.stats().nodes[0], max(lane.gap for lane in run_of(engine.trace).lanes)
    print(
        "  careful:" if careful else "  at risk:", f"{node.steps:3} steps, {node.tokens:5,} tokens computed;", end=" "
    )
    print(f"pages given back {node.preemptions} times, longest gap in an answer, in steps: {still}")
    return answers


print("all 98 tokens are used:")
to_the_end = exactly(98)
long_answers = [with_few_pages(careful, to_the_end) for careful in (True, False)]

# The same requests, but each answer ends with a token that it says early.
ends = [next(t for k, t in enumerate(a) if k >= 15 and t not in a[:k]) for a in long_answers[0]]
stop_early = [SamplingParams(max_tokens=98, ignore_eos=True, stop_token_ids=(end,)) for end in ends]
print("most stop early:")
short_answers = [with_few_pages(careful, stop_early) for careful in (True, False)]
print("lengths:", [len(answer) for answer in short_answers[0]])
print("the same answers:", long_answers[0] == long_answers[1] and short_answers[0] == short_answers[1])

# %% [markdown]
# Both times, whoever took the risk needed fewer steps for all. Giving pages back never made an answer wrong. But it
# costs: what was computed is computed again, and somebody's answer stood still for many steps meanwhile. Being careful
# costs too, also when most stop early: fewer requests run, so all together take longer. Real engines do either.
# [vLLM](https://docs.vllm.ai/en/latest/configuration/optimization/) takes the risk and computes again.
# TensorRT-LLM is [careful unless told
# otherwise](https://nvidia.github.io/TensorRT-LLM/performance/performance-tuning-guide/useful-runtime-flags.html). The
# stretch of this chapter is about taking the risk well.

# %% [markdown]
# ## What many believe
#
# | Many believe | What you saw |
# |---|---|
# | Eight users make a step eight times as long. | The weights are read once for all. |
# | The first token of an answer comes from decode. | It came out with the prompt: 9 written, 10 known. |
# | Who shares a step sees something of the others. | Alone and in company: the same tokens. |
# | A long prompt holds up everybody until it is read. | In chunks, it holds them up for one step at a time. |
# | Giving pages back costs little: the tokens are still known. | They were computed twice, and an answer stood still. |

# %% [markdown]
# ## Three questions
#
# **1. Prompts of 3 and of 20 tokens share a step. Must the short one be filled up with empty tokens, so that both are
# of one length?**
#
# <details><summary>yes, a tensor is a rectangle</summary>
#
# A tensor with one row for each *request* would be. Here it has one row for each *token*: 23 rows, one after the other.
#
# </details>
# <details><summary>no, their tokens stand one after the other, 23 rows</summary>
#
# Yes. Each row knows its position and whose pages it looks through. Nothing is filled up, and nothing computed in vain.
#
# </details>
# <details><summary>only in the first step, later each has one token</summary>
#
# Other engines did it so, and the padding stayed in their cache as well. With pages there is no need for it at any
# time.
#
# </details>
#
# **2. A chunk ended in the middle of a prompt. The model gave scores for a next token there as well. What does the
# engine do with them?**
#
# <details><summary>it takes the best one: the answer begins early</summary>
#
# Then it would answer half a question. What comes next in the *prompt* is already known, and it is something else.
#
# </details>
# <details><summary>it compares them with the real next token</summary>
#
# That would tell how well the model guesses, and it is done when models are trained. An engine that serves does not.
#
# </details>
# <details><summary>nothing</summary>
#
# Yes. They guess at a token that is known already. Only behind the last known token is there something new to say.
#
# </details>
#
# **3. Shorter prompts may pass a long one that does not fit right now: no step is wasted. What can go wrong?**
#
# <details><summary>the long one may never start</summary>
#
# Yes. As long as short ones keep coming, there is always one that fits. It does not even get an error: it just waits.
#
# </details>
# <details><summary>the answers get mixed up</summary>
#
# No: each has pages of its own. The order in which requests start changes when they answer, and not what.
#
# </details>
# <details><summary>nothing, the long one runs as soon as it is quiet</summary>
#
# When is a server quiet? Its owner hopes: never.
#
# </details>

# %% [markdown]
# ## If you want more
#
# *Stretch, at the end of the exercise notebook:* a pool of 40 pages and 60 requests that announce far more than they
# use. Targets: everybody is answered, at most 2 are computed again, no answer stands still for more than 2 steps, and
# 90 % of the budget is used.

# %% [markdown]
# ## In your own words
#
# One sentence, for yourself: who runs next when everybody shares the machine?

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
# Steps 1 and 4 name two machines: one reads prompts, the other writes answers. Now you know why somebody would want
# that. The two kinds of work get in each other's way.
#
# Next: your plan starts whoever comes. But what about a request that can never fit? Somebody has to say so, and early.
#
# Go on with [notebooks/06_the_door.ipynb](06_the_door.ipynb).

# %%
surprises(5)

# %%
print("chapter 05: done")
