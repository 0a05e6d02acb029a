# %% [markdown]
# # 06 The door
#
# **What may a server promise, and what does it say when it cannot?**
#
# When you are through, you can
#
# * **decide** at the door whether a request is served, waits, or is refused, and write the part of an engine that does;
# * **tell apart** five ways of saying no, by what the caller does next;
# * **choose** a handful of requests that show whether a door is right.
#
# You need: what is written and what is known after a prompt (chapter 05). About 50 minutes, 26 of them in
# [exercises/06_the_door.ipynb](../exercises/06_the_door.ipynb).
#
# In a hurry, 25 minutes: read the four words, run all cells down to *What a refusal says*, do exercise 6.1, and look at
# *A line of lengths*.

# %% [markdown]
# ## Two questions from before
#
# One minute each, without looking anything up:
#
# 1. A prompt of N tokens was just read. How many positions are written, and how many tokens are known? (05)
# 2. minikv starts a request when its prompt has room, though the answer will need more. What happens when no page is
#    free in the middle of an answer? (03)
#
# <details><summary>Answers</summary>
#
# 1. N are written and N + 1 are known. The newest token came out of the model. It is written in the next step, in which
#    it goes in.
# 2. Whoever joined last gives its pages back, waits, and is computed anew. So somebody always goes on, as long as there
#    is somebody else who can give pages back.
#
# </details>

# %%
import random

from minikv import Engine, SamplingParams, load_model
from minikv.course import learner_or_reference, predict, reveal, surprises
from minikv.course.seats.door import Request, Server, as_admission
from minikv.errors import ConfigError
from minikv.trace import Write
from minikv.viz.limits import Asked, limit_line

model = load_model("smollm2")
print(f"{model.name} was built for {model.max_positions:,} positions")

# %% [markdown]
# ## A promise
#
# That last answer has a hole: what if there is nobody else? Then no page ever comes back. Before a request gets in,
# somebody must make sure that this cannot happen. Four words:
#
# * **Admission** is that decision: made once, at the door, before the request has touched anything.
# * To **refuse** is to answer at once and for good: not this request, not on this server.
# * A **limit** is the largest request that is not refused.
# * The **queue** is where those who were let in wait until it is their turn.
#
# So there are three answers. *Serve*: all that it may ever write has room now. *Wait*: it will have room when others
# are through. *Refuse*: it never will, however long it waits.
#
# Our server has 7 pages of 4 slots, and says that it takes up to 512 tokens. Many servers come to be like this: the
# context is copied from what the model can do, and the pool is what memory is left.

# %%
SLOTS, CONTEXT = 28, 512


def new_server(model=model, **parts):
    return Engine(
        model, page_size=4, num_pages=SLOTS // 4, context_length=CONTEXT, allow_context_above_pool=True, **parts
    )


try:
    Engine(model, page_size=4, num_pages=SLOTS // 4, context_length=CONTEXT)
except ConfigError as error:
    print("ConfigError:", str(error).partition(" that ")[0], "...")

# %% [markdown]
# As in chapter 02, minikv does not even start with more context than pool, unless it is told in so many words to go
# ahead: `allow_context_above_pool=True`. We tell it, since we want to see what happens in between.

# %%
predict("p-6.1", ...)

# %% [markdown]
# The real engine, with the real model, five times. We print *serve* if the request has pages after the next step, and
# *wait* if it gets them later. Beside it the status (00): 200 for an answer, 400 and more for none.


# %% tags=["answers-prediction"]
text = model.encode("The library opens at nine. Whoever comes early waits at the door and reads the sign. " * 40)


def params(tokens):
    return SamplingParams(max_tokens=tokens, ignore_eos=True)


def slots_written(engine, number):
    return sum(event.stop - event.start for event in engine.trace if isinstance(event, Write) and event.owner == number)


def ask(prompt, max_tokens, neighbour=False):
    """One request to a new server: what became of it."""
    engine = new_server()
    if neighbour:  # 19 tokens sit in 5 of the 7 pages
        engine.submit(text[:19], params(4))
        engine.step()
    free = engine.pool.num_free * 4
    number = engine.submit(text[:prompt], params(max_tokens))
    engine.step()
    word = "serve" if number in engine.pool.tables else "wait"
    while not engine.requests[number].answered:
        engine.step()
    done = engine.result(number)
    word = "refuse" if done.finish_reason == "rejected" else word
    written = slots_written(engine, number)
    print(f"{prompt:3} + {max_tokens}, {free:2} slots free: {word:6}  status {done.status}, {written:2} slots written")


ask(20, 4)
ask(20, 4, neighbour=True)
ask(27, 2)
ask(27, 8)
ask(600, 1)
reveal("p-6.1")

# %% [markdown]
# Look at the third line. 27 and 2 are 29 tokens, and 28 slots were written. In the first, 24 tokens wrote 23. A prompt
# of P tokens, an answer of A tokens: how many slots are written? Say it before you open this.
#
# <details><summary>The rule</summary>
#
# **P + A − 1 slots, and P + A positions of context.**
#
# After the prompt, P are written and P + 1 known. Each further step writes one and makes one more known. So there is
# always one token that is known and not written. The last token of an answer stays like that: it would be written only
# if one more were to be computed. It has a position, as every token has. It never has a slot.
#
# This rule is the same everywhere in minikv: at the door, in the engine, in your exercise.
#
# </details>

# %% [markdown]
# ## What a refusal says
#
# A good no has four parts: that it is one, whose fault it is, what the limit is, and how far above it the request was.
# And it costs nobody else anything. Three people talk to our server; the second asks for too much.

# %%
engine = new_server()
alone = [new_server().generate([prompt], params(6))[0].token_ids for prompt in (text[:8], text[5:15])]

numbers = [engine.submit(text[:8], params(6))]
engine.step()
free_before = engine.pool.num_free
numbers.append(engine.submit(text[:40], params(6)))
print("pages free before and after the refusal:", free_before, engine.pool.num_free)
numbers.append(engine.submit(text[5:15], params(6)))
while not all(engine.requests[number].answered for number in numbers):
    engine.step()
engine.check()
first, refused, third = (engine.result(number) for number in numbers)

error = refused.error
print(type(error).__name__, "with status", error.status)
print("limit", error.limit, "prompt tokens, requested", error.requested)
print(error)
print("slots written for it:", slots_written(engine, refused.request_id))
print("the neighbours got the tokens that they get alone:", [first.token_ids, third.token_ids] == alone)

# %% [markdown]
# **400** is the status for this: *the request is the trouble; the same one will never be served.*
#
# There is a second kind of no. A queue must not grow without end, so a server may say how many may wait. Whoever comes
# when it is full gets **429**: *not now; the same request is welcome later.* Is it true?

# %%
engine = new_server(max_waiting=1)
one = engine.submit(text[:20], params(4))
engine.step()  # the first runs
two = engine.submit(text[:20], params(4))  # the second waits
three = engine.submit(text[:20], params(4))
print("the third, at once:", engine.requests[three].error.status, engine.requests[three].error)

while not all(engine.requests[number].answered for number in (one, two)):
    engine.step()
print("the two others:    ", [engine.result(number).status for number in (one, two)])
print("the third, later:  ", engine.generate([text[:20]], params(4))[0].status)

# %% [markdown]
# It was. A caller can rely on both numbers: 400, change the request; 429, come back.
#
# **Now exercise 6.1** in [exercises/06_the_door.ipynb](../exercises/06_the_door.ipynb), 18 minutes: write the door.
# Then come back: the next cell uses your function.

# %% [markdown]
# ## Your door in the engine
#
# `as_admission` puts your function in the engine's door. "refuse" is final. With "serve" and with "wait" a request gets
# into the queue, and the scheduler decides who starts. It is more daring than you: room for the prompt is enough (03).

# %%
admit = learner_or_reference("ex-6.1")
engine = new_server(admission=as_admission(admit, free=lambda: engine.pool.num_free * 4))
requests = [(20, 4), (27, 2), (27, 8), (5, 3), (600, 1), (9, 8)]
for prompt, max_tokens in requests:
    engine.submit(text[:prompt], params(max_tokens))
    engine.step()
yours = []
for number in range(len(requests)):
    while not engine.requests[number].answered:
        engine.step()
    yours.append(engine.result(number))
engine.check()

for said, done in zip(engine.admission.said, yours, strict=True):
    asked = f"{said.prompt_tokens} + {said.max_tokens}, {said.free} free"
    print(f"{asked:>16}: {said.word:6}  then status {done.status}, {len(done.token_ids)} tokens")
minikvs = new_server().generate([text[:prompt] for prompt, _ in requests], [params(n) for _, n in requests])
same = [(a.status, a.token_ids) for a in yours] == [(b.status, b.token_ids) for b in minikvs]
print("statuses and tokens as with minikv's own door:", same)

# %% [markdown]
# And a door that means well? This one turns nobody away. Whoever does not fit may wait.


# %%
def kind_door(request, server):
    return "wait"


toy_model = load_model("tiny-random")  # says nonsense, but quickly
engine = new_server(toy_model, admission=as_admission(kind_door))
answers = engine.generate([[7] * 27, [8] * 20, [9] * 5], [params(8), params(4), params(6)])
for answer in answers:
    print(f"{answer.prompt_tokens:2} + {answer.max_tokens}: status {answer.status}", answer.error or "")

# %% [markdown]
# The first was let in, took all 28 slots, and then there was nobody left to give pages back. minikv looks for exactly
# this. It says which rule was broken, for whom and in which step, and serves the others. An engine that does not look
# waits for a page that never comes. So does everybody behind it in the queue.
#
# That is no invention. [Issue 39734](https://github.com/vllm-project/vllm/issues/39734) of vLLM reports it: a pool of
# 76,640 tokens and a context of 262,144. A request between the two waits, nothing runs, and all that come later are
# stuck behind it. They go on when the caller gives up.

# %% [markdown]
# ## Five ways of saying no
#
# Between a server and a person there is often a proxy: a program that passes requests on, and answers back. It sends a
# request again where that may help.

# %%
predict("p-6.2", ...)

# %% [markdown]
# We need one proxy to count with. OpenAI's client for Python is in many of them. It sends again after 408, 409, 429,
# everything from 500 on, and when no answer comes. It makes three attempts in all and waits ten minutes for each; these
# are its [defaults](https://github.com/openai/openai-python/blob/main/src/openai/_constants.py).


# %% tags=["answers-prediction"]
def proxy(status, attempts=3, patience=10):
    """Send one hopeless request until it is answered for good: how often, and minutes spent on silence."""
    sent = minutes = 0
    while sent < attempts:
        sent += 1
        if status is None:
            minutes += patience
        elif status not in (408, 409, 429) and status < 500:
            break
    return sent, minutes


for name, status in {"400": 400, "429": 429, "500": 500, "200, prompt cut": 200, "nothing": None}.items():
    sent, minutes = proxy(status)
    print(f"{name:15}  sent {sent} times, {minutes:2} minutes of silence")

# %% [markdown]
# For the proxy silence is the worst: half an hour, and three times the work. 429 is a lie here. "Later" will not help.
# 500 takes the blame for something that the caller could have changed.
#
# And the cut prompt? A person sends this to a server that reads the last 20 tokens and says nothing about it.

# %% tags=["answers-prediction"]
note = "The meeting is on Thursday. Bring the blue folder, the long list and two pens, and do not be late this time."
question = model.encode(note + " The meeting is on")
large = Engine(model, page_size=4, num_pages=16)
for name, ids in (("whole", question), ("cut", question[-20:])):
    answer = large.generate([ids], params(4))[0]
    print(f"{name:5}  {len(ids)} tokens read, status {answer.status}: {answer.text!r}")
reveal("p-6.2")

# %% [markdown]
# A day, stated as a fact, with status 200. No proxy, no log and no person sees that the note was never read. **200
# says that there is an answer. It does not say to which question.** The reply of a server tells how many prompt tokens
# it has read. Hardly anybody compares.
#
# Cutting has its place: where the caller asked for it, and is told what was left out.

# %% [markdown]
# ## A line of lengths
#
# Your door, asked about every length from 2 to 700, at each step of a run. Three requests are served meanwhile, so what
# is free changes. Beside your door stands what a project often starts with as its test: something short, something
# average, and something absurdly long.

# %%
first_test = [(5, 4), (16, 4), (600, 4)]
engine = new_server(admission=as_admission(admit, free=lambda: engine.pool.num_free * 4))
print("the first test, your door:        ", [engine.generate([text[:p]], params(n))[0].status for p, n in first_test])


def context_door(request, server):
    return "serve" if len(request.prompt) + request.max_tokens <= server.context else "refuse"


blind = new_server(toy_model, admission=as_admission(context_door))
print("a door that never asks the pool:", [blind.generate([[7] * p], params(n))[0].status for p, n in first_test])


def ask_all(engine):
    """What your door says now to every length, up to 4 tokens of it for the answer."""
    free = engine.pool.num_free * 4
    words = []
    for length in range(2, 701):
        answer = min(4, length - 1)
        said = admit(Request([7] * (length - answer), answer), Server(free, SLOTS, CONTEXT))
        words.append(said if isinstance(said, str) else said[0])
    return Asked(engine.trace.step, free, tuple(words))


asked = [ask_all(engine)]
for prompt, max_tokens in ((7, 6), (6, 4), (5, 8)):
    engine.submit(text[:prompt], params(max_tokens))
    engine.step()
    asked.append(ask_all(engine))
while engine.pool.tables:
    engine.step()
    asked.append(ask_all(engine))

limit_line(asked, pool=SLOTS, context=CONTEXT, sent=[p + n for p, n in first_test])

# %% [markdown]
# Move the slider. The border between *serve* and *wait* moves with every step. The border between *wait* and *refuse*
# never does. That is why one of the two may be told to the caller as final. (The first two borders are one more than
# the slots, since the last token needs none.)
#
# Then look at the line below. The first test was green: 200, 200, 400. It was just as green for a door that never asks
# the pool, because between pool and context nothing was sent. The article reports such a gap on a real service: a
# context of 1,048,576 tokens and, for reading prompts, a pool of 681,280.

# %% [markdown]
# ## Where mistakes live
#
# You might fill the gap by chance: send random requests, and compare with what should come.

# %%
predict("p-6.3", ...)

# %% tags=["answers-prediction"]
draw = random.Random(6)
sample = [(draw.randint(1, 600), draw.randint(1, 200)) for _ in range(1000)]
every = [(prompt, answer) for prompt in range(1, 601) for answer in range(1, 201)]


def differ(requests):
    """How many of these are let in by one of the two doors and refused by the other."""
    return sum((p + a - 1 > SLOTS) != (p + a - 1 >= SLOTS) for p, a in requests)


print("of the 1,000:", differ(sample))
print(f"of all {len(every):,}:", differ(every))
reveal("p-6.3")

# %% [markdown]
# Chance finds mistakes that are everywhere. Those of a door are at its limits, on one side of one number.
#
# **Now exercise 6.2**, 8 minutes: find four broken doors with at most six requests. Then come back.

# %% [markdown]
# Your requests and a real engine. Four doors: minikv's own, yours, one with `>=`, and one that keeps the last 20 tokens
# of a long prompt.

# %%
is_broken = learner_or_reference("ex-6.2")


def strict_door(request, server):
    return "refuse" if len(request.prompt) + request.max_tokens - 1 >= server.pool else "serve"


def cutting_door(request, server):
    del request.prompt[:-20]
    return admit(request, server)


for name, parts in {
    "minikv's own": {},
    "yours": {"admission": as_admission(admit)},
    "with >=": {"admission": as_admission(strict_door)},
    "cuts": {"admission": as_admission(cutting_door)},
}.items():
    engine = new_server(toy_model, **parts)
    replies = []

    def send(prompt, max_tokens, engine=engine, replies=replies):
        replies.append(engine.generate([[7] * prompt], params(max_tokens))[0])
        return replies[-1]

    print(f"{name:12}: {'broken' if is_broken(send) else 'right'}")
    for reply in replies:
        if reply.status == 500:
            print("   ", reply.error)

# %% [markdown]
# minikv does not let a door cut anything: the caller's prompt is as it came, from the door to the last step. Whoever
# changes it changes what everybody behind the door measures. Keep that in mind for chapter 08.

# %% [markdown]
# ## Who says what today
#
# What some engines say to a request that is too long. *Measured*: run by the authors of this course. *Read*: read in
# the source. *Reported*: described by somebody else. *Inferred*: concluded from the source. All looked up in 2026, in
# the version named; they may have changed.
#
# | engine | what it says | how we know |
# |---|---|---|
# | minikv | 400, and what would fit | measured, above |
# | vLLM | over the context: 400 ([PR 33425][vllm]); with a pool below the context it does not start | read |
# | vLLM, where that check missed it | in between: it hangs ([issue 39734][hang]) | reported |
# | SGLang 0.5.19, one machine | over the context or over the pool: 400 | read |
# | the same, answering in a stream | over the pool: 200, with the error inside | inferred |
# | SGLang 0.5.19 with `--allow-auto-truncate` | 200, the prompt cut, a line in the server's log | read |
# | llama.cpp server | 400, with both numbers ([PR 15780](https://github.com/ggml-org/llama.cpp/pull/15780)) | read |
# | llama-cpp-python 0.3.35 | prompt too long: 400. Only the answer too long: 200, with fewer tokens | read |
# | ik_llama.cpp, before [PR 2420](https://github.com/ikawrakow/ik_llama.cpp/pull/2420) | 500 | read |
# | mini-sglang 20fcd7f | nothing: it writes a line into its log | read; that the caller waits, inferred |
# | tiny-llm 1078c08 | an exception that ends everybody's answers | read |
# | nano-vllm bb823b3 | an assertion; all other requests are lost | measured |
# | transformers 5.24.0, continuous batching | the request fails, the worker ends, later ones are not taken | measured |
#
# [vllm]: https://github.com/vllm-project/vllm/pull/33425
# [hang]: https://github.com/vllm-project/vllm/issues/39734
#
# Which of these is yours? And has anybody sent it something from the gap?

# %% [markdown]
# ## What many believe
#
# | Many believe | What you saw |
# |---|---|
# | A context of 512 means that 512 tokens fit. | 27 + 8 was refused. 28 slots hold no 34. |
# | 200 means that the answer is right. | Friday. |
# | Cutting is kinder than refusing. | Nobody could know that the note was cut. A 400 names the limit. |
# | Refusing is failing. | One caller heard at once what to change, and the neighbours' tokens were the same. |
# | Nobody is hurt by one who waits for ever. | Without a rule that looks for it, everybody behind it waits too. |
# | A refusal concerns only whoever returns it. | Not seen yet. Here one door knew everything. Chapter 07 has two. |

# %% [markdown]
# ## Three questions
#
# **1. A server has 28 slots and a context of 28. What is the longest prompt that it serves with one answer token?**
#
# <details><summary>28</summary>
#
# The pool would take it: 28 slots, and the answer's one token needs none. But that token has a position, the 29th.
#
# </details>
# <details><summary>27</summary>
#
# Yes. 27 + 1 positions are all of the context, and one slot stays empty.
#
# </details>
# <details><summary>26</summary>
#
# Then both limits would be one too small. Work out slots and positions for 27 + 1.
#
# </details>
#
# **2. The queue is full. A request comes that could never fit. Which status?**
#
# <details><summary>429, since the queue is full</summary>
#
# The caller would come back, and hear 400 then. "Later" must be true.
#
# </details>
# <details><summary>400, since it never fits</summary>
#
# Yes. What lasts is asked first. minikv's door does it in this order.
#
# </details>
# <details><summary>either, it is turned away in any case</summary>
#
# It is turned away, and then? One number says: change something. The other says: send the same again.
#
# </details>
#
# **3. To save time, a proxy counts characters, takes four for a token, and refuses what is over the limit. May the
# server's own door be left out?**
#
# <details><summary>yes, somebody has looked already</summary>
#
# Somebody has looked at something else. Names, numbers and other scripts take more tokens than that, and get through.
#
# </details>
# <details><summary>yes, if the proxy leaves a margin</summary>
#
# How large? A margin that no text can break refuses most of what fits. And the limit moves whenever the pool does.
#
# </details>
# <details><summary>no: who serves must know what was measured</summary>
#
# Yes. Two that measure differently agree on most requests. On the rest, one lets in what the other cannot hold.
#
# </details>

# %% [markdown]
# ## If you want more
#
# *Stretch, at the end of the exercise notebook:* who starts next? Targets: 95 % of the pool in use, nobody passed more
# than 3 times, everybody served.

# %% [markdown]
# ## In your own words
#
# One sentence, for yourself: what may a server promise, and what must it say when it cannot?

# %%
my_sentence = "..."

# %% [markdown]
# ## The story so far
#
# The article says of step 2 that the request is marked as refused and goes on all the same, with a stand-in for its
# prompt. You know both halves: what a refusal is, and what becomes of a prompt that a door has changed.
#
# | step | The incident, as the article tells it | state |
# |---|---|---|
# | 1 | Somebody sends a prompt that is longer than the pool of the machine that reads prompts. | I can explain this |
# | 2 | The server does not turn it away. It puts a stand-in of one token in its place. | I can explain this |
# | 3 | The next part asks only whether that request is over. It is, so it may pass. | not yet: chapter 09 checks it |
# | 4 | A second machine makes room for 8 pages. It is sent one. | not yet |
# | 5 | It reads all 8. In 7 of them lies what strangers wrote before. | not yet: *why* it reads them is open |
#
# Next: two machines, each with a pool and a door of its own. One of the two says no. Who hears it?
#
# Go on with [notebooks/07_two_machines.ipynb](07_two_machines.ipynb).

# %%
surprises(6)

# %%
print("chapter 06: done")
