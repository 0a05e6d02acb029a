# %% [markdown]
# # 07 Two machines
#
# **How does a cache travel, and how does the receiver know that it is all there?**
#
# When you are through, you can
#
# * **follow** a cache from one machine to another: what travels, what stays, and who numbers what;
# * **receive** one: write the part that takes it complete or not at all, and run a real model behind it;
# * **deceive** a receiver that asks for one thing too few.
#
# You need: chapters 03 to 06, above all *page*, *reserved*, *prefill*, *decode* and your door. About 75 minutes, 38 of
# them in [exercises/07_two_machines.ipynb](../exercises/07_two_machines.ipynb).
#
# In a hurry, 40 minutes: go down to the first picture with predictions p-7.1 and p-7.2, do exercise 7.1, and run the
# rest.

# %% [markdown]
# ## Two questions from before
#
# One minute each, without looking anything up:
#
# 1. A prompt of N tokens has been read. For how many positions are there keys and values? How many tokens are known?
# 2. A pool has 28 slots, all of them free. A prompt has 27 tokens, and 2 tokens of answer are asked for. Serve or
#    refuse?
#
# <details><summary>Answers</summary>
#
# 1. N positions, and N + 1 tokens. Reading the prompt gives the first token of the answer. That token has no key and
#    no value yet.
# 2. Serve. The last token is never written, so 27 + 2 - 1 = 28 slots are needed.
#
# </details>

# %%
from dataclasses import replace

import torch

from minikv import Cluster, Engine, NodeConfig, SamplingParams, load_model
from minikv.course import learner_or_reference, mine, predict, reveal, surprises
from minikv.course.chapters.ch07 import DecodeSide, PrefillSide, digest_of, sample, tried
from minikv.course.seats.door import Request, Server, read_answer
from minikv.course.seats.receiver import as_handoff, delivered
from minikv.trace import Allocate, HandoffDone
from minikv.viz.transfer import transfer_map

torch.set_grad_enabled(False)
model = load_model("smollm2")
answer_of_8 = SamplingParams(max_tokens=8, ignore_eos=True)

# %% [markdown]
# ## One answer, two nodes
#
# Prefill and decode are different kinds of work: many tokens in one step, or one token in each of many steps. On one
# machine they get into each other's way. So large services give them to different machines. A **node** is one copy of
# the model with one pool of its own. A *prefill node* reads prompts. A *decode node* writes the answers, and it is the
# one that the client listens to.
#
# Both nodes have the whole model. Before you run the cell: of a prompt of 5 tokens, how many does the decode node
# compute once more?

# %%
PROMPT = "The capital of France is"
one_node = Engine(model, page_size=4, num_pages=16)
two_nodes = Cluster(
    model, prefill=NodeConfig(num_pages=7), decode=NodeConfig(num_pages=64), page_size=4, context_length=28
)
texts = [server.generate([PROMPT], answer_of_8)[0].text for server in (one_node, two_nodes)]

print(repr(PROMPT + texts[1]))
print("the same answer from one node and from two:", texts[0] == texts[1])
print("tokens of the prompt:", len(model.encode(PROMPT)), " tokens of the answer:", answer_of_8.max_tokens)
for node in two_nodes.stats().nodes:
    print(f"  the {node.name} node computed {node.tokens} tokens")

# %% [markdown]
# None of them. The prefill node read the 5 tokens of the prompt, and this gave the first token of the answer. The
# decode node put in one token of the answer after the other, seven times, and got the other seven. The prompt never
# went through its model, and still the answer goes on from it. So the keys and values must have come from the other
# node.
#
# Let us look at what can go wrong on this way. It begins before anything has travelled.

# %% [markdown]
# ## Two doors
#
# In chapter 06 you wrote a door for one node. Now there are two nodes. The simplest way: each gets a door, the same
# one, and each door knows its own pool.

# %%
predict("p-7.1", ...)

# %% tags=["answers-prediction"]
PREFILL, DECODE, CONTEXT = 28, 256, 512  # slots, slots, positions
admit = learner_or_reference("ex-6.1")


def door(slots, prompt_tokens):
    """What the door of one node says. All its slots are free, and it knows of no other node."""
    request, server = Request([1] * prompt_tokens, max_tokens=4), Server(free=slots, pool=slots, context=CONTEXT)
    return read_answer(admit(request, server)).word


said = {"prefill": door(PREFILL, 31), "decode": door(DECODE, 31)}
for node, word in said.items():
    print(f"{node}'s door says: {word}")

decode = DecodeSide.of_model(model, num_pages=DECODE // 4, page_size=4)
if said["decode"] == "serve":
    decode.expect(request=7, tokens=31)
print("decode has reserved pages", decode.reserved[7], "for request 7, and waits for its keys and values")
print("the client has read:", decode.sent.get(7, []))
reveal("p-7.1")

# %% [markdown]
# Both doors are right, each for its own node. But a refusal is only worth something if it reaches whoever acts on it.
# (minikv's `Cluster` has one door in front of both nodes, and that door knows both pools. We leave it out here, to see
# what the other parts can do.)
#
# Decode waits. What will it get?

# %% [markdown]
# ## What travels
#
# What a prefill node gives to a decode node is called a **handoff**. It has six fields. Here is a real one.

# %%
prefill = PrefillSide(model, num_pages=PREFILL // 4, page_size=4)
handoff = prefill.read(request=3, ids=model.encode(PROMPT))

print("request     ", handoff.request)
print("num_tokens  ", handoff.num_tokens, "  so many tokens are promised")
print("first_token ", handoff.first_token, repr(model.decode([handoff.first_token])))
print("keys        ", len(handoff.keys), "layers, each", list(handoff.keys[0].shape), " pages, slots, heads, numbers")
print("values      ", len(handoff.values), "layers, each", list(handoff.values[0].shape))
print("digest      ", len(handoff.digest), "letters")

bytes_sent = sum(tensor.numel() * tensor.element_size() for tensor in (*handoff.keys, *handoff.values))
print(f"\n{bytes_sent:,} bytes of keys and values for a text of {len(PROMPT)} letters")

# %% [markdown]
# Two things to notice. Pages are sent whole: 5 tokens fill one page and one slot of the next, and all 8 slots go. What
# lay in the other three goes with them. So the tensors alone do not say how many tokens there are.
# `num_tokens` must say it.
#
# And there is a **digest**: a short text that is worked out from what is in the handoff. The sender puts it in, and
# the receiver works it out again and compares. Four handoffs: one as it was sent, three with one number changed on the
# way. For which will the two digests match?

# %%
values = [tensor.clone() for tensor in handoff.values]
values[29][1, 0, 0, 0] += 1  # a number of the fifth token, in the last layer
behind = [tensor.clone() for tensor in handoff.values]
behind[29][1, 1, 0, 0] += 1  # the slot behind it, where no token is

for what, came in (
    ("as it was sent", handoff),
    ("one number of a token changed", replace(handoff, values=values)),
    ("the first token changed", replace(handoff, first_token=handoff.first_token + 1)),
    ("a slot behind the last token changed", replace(handoff, values=behind)),
):
    print(f"{what:37} digest matches: {digest_of(came) == came.digest}")

# %% [markdown]
# For two. A digest covers the tokens that are promised, and not what lies behind them. That seems to be all that one
# needs.
#
# Now back to request 7, and to the story of the article. Prefill's door has said no. But the request is not turned
# away: the server puts a stand-in of one token in its place, reads that, and hands it over.

# %%
predict("p-7.2", ...)

# %% tags=["answers-prediction"]
standin = prefill.read(request=7, ids=[0])

print("digest matches:    ", digest_of(standin) == standin.digest)
print("pages that came:   ", len(standin.keys[0]))
print("pages reserved:    ", len(decode.reserved[7]))
print("tokens promised:   ", standin.num_tokens)
print("tokens expected:   ", decode.expected[7])
reveal("p-7.2")

# %% [markdown]
# What does decode do with it? That depends on the part of it that takes handoffs. Here is one that trusts. The network
# says *success*, so it copies each page that came to its place, and sends the first token to the client.


# %% tags=["answers-prediction"]
def trusting(node, request, handoff):
    for own, came in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values], strict=True):
        for page, content in zip(node.reserved[request], came, strict=False):  # ends with the shorter one
            own[page] = content
    node.send(request, handoff.first_token)


first_try = delivered(trusting, decode, 7, standin, sent=prefill.pages(7))
transfer_map(first_try, pools=(PREFILL // 4, DECODE // 4))

# %% [markdown]
# This picture stays with us in this chapter: two pools, what went over, and three numbers below, all in *tokens*.
#
# | number | who knows it |
# |---|---|
# | **expected** | the door: it wrote the length of the prompt down |
# | **promised** | the sender: it says how much it wrote |
# | **received** | whoever counts: how many of the promised tokens have a slot in what came |
#
# Three numbers, three parts, and no two of them compared. The `X` marks that they are not equal. And beside it the last
# column says *taken*: the client has read the first token of an answer to a prompt that nobody has read. Seven of the
# eight pages hold whatever they held before. What that is, and what comes of it, is for chapter 08. Here we build a
# receiver that does not let it happen.

# %% [markdown]
# ## Whose page 0?
#
# One more thing to know before you write it. Pages have numbers, and both nodes count from 0.

# %%
predict("p-7.3", ...)

# %% [markdown]
# Three requests come one after the other, to a fresh pair of nodes. We ask the trace which pages were lent where.

# %% tags=["answers-prediction"]
cluster = Cluster(
    model, prefill=NodeConfig(num_pages=7), decode=NodeConfig(num_pages=64), page_size=4, context_length=28
)
prompts = ["Monday, Tuesday, Wednesday,", "One, two, three, four,", PROMPT]
numbers = []
for prompt in prompts:
    numbers.append(cluster.submit(prompt, answer_of_8))
    cluster.step()
while not all(cluster.requests[number].finished for number in numbers):
    cluster.step()

arrived = {event.request: list(event.pages) for event in cluster.trace if isinstance(event, HandoffDone)}
for number in numbers:
    at_prefill = [e.page for e in cluster.trace if isinstance(e, Allocate) and (e.node, e.owner) == ("prefill", number)]
    print(f"request {number}: prefill pages {at_prefill}, decode pages {arrived[number]}")
alone = [Engine(model, page_size=4, num_pages=16).generate([prompt], answer_of_8)[0] for prompt in prompts]
print("the same answers as on one node:", [cluster.result(n).text for n in numbers] == [a.text for a in alone])
reveal("p-7.3")

# %% [markdown]
# Prefill needs its pages for a moment and lends the same ones again. Decode keeps them for the whole answer. (Where its
# numbers jump, a growing answer has taken the page between.) What travels is neither number. It is the *order*: first
# page, second page. A key carries its position inside, and each node has a page table of its own, so attention finds
# everything (chapter 04).
#
# **Now exercise 7.1** in [exercises/07_two_machines.ipynb](../exercises/07_two_machines.ipynb), 25 minutes: `receive`,
# complete or nothing. Then come back: the next cell uses your function.

# %% [markdown]
# ## Your receiver in a cluster
#
# The real model on two nodes, and between them your `receive`. `as_handoff` is the seat that puts it there. For every
# handoff it gives your function a small node to fill, looks at what you did with it, and lets the cluster go on.

# %%
receive = learner_or_reference("ex-7.1")
prompts = [
    "The capital of France is",
    "Monday, Tuesday, Wednesday,",
    "One, two, three, four,",
    "A page is lent to one request after another, as a library lends a book.",
    "Once upon a time there was a small",
]
sizes = {"prefill": NodeConfig(num_pages=14), "decode": NodeConfig(num_pages=64), "page_size": 4, "context_length": 56}
cluster = Cluster(model, **sizes, handoff=as_handoff(receive))
answers = cluster.generate(prompts, answer_of_8)
alone = Engine(model, page_size=4, num_pages=64).generate(prompts, answer_of_8)

for prompt, answer in zip(prompts, answers, strict=True):
    print(answer.status, repr(prompt[-22:]), repr(answer.text))
print("the same tokens as on one node:", [a.token_ids for a in answers] == [a.token_ids for a in alone])

# %% [markdown]
# All is well on a good day. Now a bad one. Of five handoffs, three meet with an accident on the way. Before you run it:
# what should the two others see?


# %%
def bad_day(handoff):
    """What happens to handoffs on the way."""
    if handoff.request == 1:  # one number changes
        values = [tensor.clone() for tensor in handoff.values]
        values[29][0, 2, 1, 5] += 0.5
        return replace(handoff, values=values)
    if handoff.request == 2:  # the last page is lost
        return replace(handoff, keys=[k[:-1] for k in handoff.keys], values=[v[:-1] for v in handoff.values])
    if handoff.request == 3:  # the sender says one token less
        return replace(handoff, num_tokens=handoff.num_tokens - 1)
    return handoff


cluster = Cluster(model, **sizes, handoff=as_handoff(receive, spoil=bad_day))
answers = cluster.generate(prompts, answer_of_8)
for number, answer in enumerate(answers):
    print(f"request {number}: status {answer.status}")
right = [answers[number].token_ids == alone[number].token_ids for number in (0, 4)]
print("requests 0 and 4 got their right answers:", right)
print("pages free:", ", ".join(f"{node.name} {node.pool.num_free} of {node.pool.num_pages}" for node in cluster.nodes))
cluster.check()

# %% [markdown]
# Status 502 means: *I asked another machine, and what it gave me is no good.* The client knows where it stands and may
# try again. The others notice nothing, and every page is back.
#
# Here are the five handoffs as your receiver met them. Look at request 1 and at the column *equal*. (The slider needs
# Jupyter.)

# %%
met = list(cluster.decode.contract.transfers)
transfer_map(met, pools=(14, 64))

# %% [markdown]
# Request 1: all three numbers are equal, and it was refused. So counting is not enough either, and this is what the
# digest is for. Counts say that all of it is *there*. The digest says that it is *undamaged*. You need both, and with
# both nothing is left for *success* to say.
#
# And if somebody puts a worse receiver into this seat?

# %%
cluster = Cluster(model, **sizes, handoff=as_handoff(trusting, spoil=bad_day))
for number, answer in enumerate(cluster.generate(prompts, answer_of_8)):
    print(f"request {number}: {answer.error or 'answered'}")

# %% [markdown]
# The seat compares. It names the rule that a part has broken, and does not serve the answer. Not every server has such
# a seat.
#
# **Now exercise 7.2**, 12 minutes: three receivers that are better than this one, and each of them can be deceived.

# %% [markdown]
# What did your three deceptions rest on? And does your own receiver fall for one of them?

# %%
deceive = learner_or_reference("ex-7.2")
receivers = ("counts_pages", "reads_the_promise", "forgets")
for name, handoffs in zip(receivers, deceive(sample()), strict=True):
    outcomes = [outcome.partition(":")[0] for outcome in tried(receive, *handoffs)]
    print(f"meant for {name:17}   yours:", ", then ".join(outcomes))

# %% [markdown]
# ## On the test stand
#
# You know the fault of the two doors now. Would your tests have found it? Most test stands are built from what is at
# hand, and that is two of the same machine, or almost.

# %%
predict("p-7.4", ...)

# %% tags=["answers-prediction"]
for pools in ((28, 256), (64, 64), (64, 68)):
    differ = [length for length in range(1, 301) if door(pools[0], length) != door(pools[1], length)]
    which = f", from {differ[0]} to {differ[-1]} tokens" if differ else ""
    print(f"pools of {pools[0]} and {pools[1]:3} slots: the doors disagree on {len(differ):3} of 300 lengths{which}")
reveal("p-7.4")

# %% [markdown]
# The same doors, and the same missing word between them, each time. On equal pools the fault does not show smaller. It
# does not show at all. And with one page of difference it waits for somebody to send just one of these few lengths.

# %% [markdown]
# ## What many believe
#
# | Many believe | What you saw |
# |---|---|
# | Success means that all of it is there. | All that was *sent* was there: one token of 31. |
# | A digest proves that nothing is missing. | It matched. It was worked out from what was sent. |
# | Page numbers travel. | The same tokens lay in other pages on the other node. The order travels. |
# | Both sides know one length. | The door, the sender and the tensors: three numbers, and nobody had compared them. |
# | Two equal machines are a fair test. | On equal pools the doors never disagreed. |
# | The decode node reads the prompt again. | It computed the answer's tokens alone. |

# %% [markdown]
# ## Three questions
#
# **1. A prompt of 12 tokens was handed over, with pages of 4. Decode takes its first step. Where does it write?**
#
# <details><summary>the last slot of the third page</summary>
#
# That is position 11, the last token of the prompt. Prefill has written it, and it came with the handoff.
#
# </details>
# <details><summary>the first slot of a fourth page</summary>
#
# Yes. Position 12 is the first token of the answer. Prefill chose it, but nobody has computed its key and value yet.
# Three pages are full, so decode must get a fourth one before its first step.
#
# </details>
# <details><summary>none: the first token came with the handoff</summary>
#
# It came as a number, without a key and a value. To get the second token, decode puts the first one through the model,
# and that writes its slot.
#
# </details>
#
# **2. The handoff of request 5 had lost a page and was refused. A moment later the network finds the page, and the
# complete handoff comes. Take it?**
#
# <details><summary>yes, now it is complete</summary>
#
# Complete, but for whom? The client was told 502. The pages of request 5 were given back, and may be lent to somebody
# by now. Into which pages would you write?
#
# </details>
# <details><summary>yes, if the old pages are still free</summary>
#
# Free is not reserved. In the next moment somebody gets them.
#
# </details>
# <details><summary>no: a refusal is final</summary>
#
# Yes. Whoever wants to try again begins at the door, as a new request with new pages.
#
# </details>
#
# **3. The digest matches and all counts are equal. Can you be sure that nobody has changed the handoff on purpose?**
#
# <details><summary>yes, any change would alter the digest</summary>
#
# It would. And whoever makes the change can work out the new digest as well: you did so in exercise 7.2.
#
# </details>
# <details><summary>no, a digest is no signature</summary>
#
# Yes. It finds accidents. Against intent you need something that only the sender can make, such as a signature with a
# secret key.
#
# </details>
# <details><summary>yes, if the digest is long enough</summary>
#
# A longer digest makes it less likely that an accident goes unseen. Anybody can still work it out.
#
# </details>

# %% [markdown]
# ## If you want more
#
# *Stretch, at the end of the exercise notebook:* clients hang up at any moment, and the network goes on writing into
# pages that were given back. Over 1,000 random orders of events the simplest rule lets requests read thousands of slots
# that somebody else wrote. Target: 0 foreign slots, 0 pages lost, 0 pages given back twice.

# %% [markdown]
# ## In your own words
#
# One sentence, for yourself: how does a receiver know that it is all there?

# %%
my_sentence = "..."

# %% [markdown]
# ## The story so far
#
# | step | The incident, as the article tells it | state |
# |---|---|---|
# | 1 | Somebody sends a prompt that is longer than the pool of the machine that reads prompts. | I can explain this |
# | 2 | The server does not turn it away. It puts a stand-in of one token in its place. | I can explain this |
# | 3 | The next part asks only whether that request is over. It is, so it may pass. | not yet: chapter 09 checks it |
# | 4 | A second machine makes room for 8 pages. It is sent one. | I can explain this |
# | 5 | It reads all 8. In 7 of them lies what strangers wrote before. | not yet: *why* it reads them is open |

# %% [markdown]
# ## What is yours
#
# Five parts of this engine can be your own by now: the allocator (3.2), attention (4.2 or 4.3), the scheduler (5.2),
# the door (6.1) and the receiver (7.1). The next cell puts all of them into one server of two nodes, with references
# where nothing of yours is kept. In a terminal, `minikv mine` does the same.

# %%
same = mine(model=model)

# %% [markdown]
# In the next chapter we put two historical parts in place of yours, the door and the receiver. Your allocator and your
# attention stay, unchanged and correct. And they will speak a stranger's words.
#
# Go on with [notebooks/08_seven_stale_pages.ipynb](08_seven_stale_pages.ipynb).

# %%
surprises(7)

# %%
print("chapter 07: done")
