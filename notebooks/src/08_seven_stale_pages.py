# %% [markdown]
# # 08 Seven stale pages
#
# **Whose words are these?**
#
# When you are through, you can
#
# * **attack** a serving engine of your own with nothing but a long question;
# * **prove** whose words came out, without asking the model;
# * **count** what was reserved, what was written and what was read, and say why these are three numbers.
#
# You need: chapter 03, since your allocator runs here, and 04 to 07, or the words below. About 75 minutes, 38 of them
# in [exercises/08_seven_stale_pages.ipynb](../exercises/08_seven_stale_pages.ipynb).
#
# In a hurry, 30 minutes: make each prediction before you run the next cell, and do exercise 8.1.
#
# **Your own machine, your own victims.** The two customers of this server are invented, and so are their secrets. Never
# try this on a service that others use. There, the test itself is the leak: if it works, you hold a stranger's words.

# %% [markdown]
# ## Two questions from before
#
# One minute each, without looking anything up:
#
# 1. A page was given back and is lent again. Nothing was written yet. What is in it?
# 2. Each page has an owner, and each slot has a writer. Which of the two changes when a page is lent?
#
# <details><summary>Answers</summary>
#
# 1. What the last writer left. Nobody wipes.
# 2. The owner. The writer changes when somebody writes.
#
# </details>
#
# <details><summary>You are on the short path and have not read 04 to 07? These words</summary>
#
# | word | means |
# |---|---|
# | page table | one request's pages, in the order of its positions: position 0 is in the first page |
# | reserved, written, read | slots that a request holds, that it has filled, that are looked at: three numbers |
# | prefill | reading the whole prompt at once, and choosing the first token of the answer |
# | decode | writing the rest of the answer, one token in each step |
# | node | one copy of the model with one pool of pages. Here: one node for prefill, another for decode |
# | handoff | what prefill gives to decode: filled pages and the first token |
# | limit, refuse | the length from which on a request is turned away, with status 400 |
#
# </details>
#
# One new word: a **tenant** is whoever a request belongs to. Between two tenants there must be a wall.

# %%
from dataclasses import replace

import torch

from minikv import Cluster, load_model
from minikv.course import learner_or_reference, my_parts, predict, progress, reveal, surprises
from minikv.course.chapters.ch03 import Allocator as ReferenceAllocator
from minikv.course.chapters.ch08 import Lab, busy_day, doors, sender
from minikv.incident.history import HistoricalCluster, historical_limit
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Stage, build
from minikv.incident.tenants import tenant
from minikv.trace import Admit, HandoffDone
from minikv.viz import page_map
from minikv.viz.texts import shared_runs
from minikv.viz.whose import whose_words
from minikv.viz.window import window_line
from minikv.viz.window_panel import window_panel

torch.set_grad_enabled(False)
model = load_model("smollm2")
day = busy_day()
print(f"pages of {day.page_size} slots")
print(f"prefill pool: {day.prefill.num_pages * day.page_size:,} tokens")
print(f"decode pool:  {day.decode.num_pages * day.page_size:,} tokens")
print(f"context:      {day.context_length:,} tokens, promised to everybody")

# %% [markdown]
# ## Two nodes, one rule
#
# We rebuild one moment of history: the serving engine SGLang in version 0.5.19, with a prefill node and a decode node.
# The source shows how each node decides whether a prompt is too long:
#
# > refuse if `length >= min(context - 1, pool - 1) - 5`
#
# (sgl-project/sglang 0.5.19, `managers/tp_worker.py`, `get_worker_info`; reported in issue
# [#30233](https://github.com/sgl-project/sglang/issues/30233).) One slot is kept back, and then five more. Nothing is
# wrong with the rule. Each node applies it to its own pool. Here prefill refuses from min(8191, 447) - 5 = 442 tokens
# on, and decode from min(8191, 4095) - 5 = 4,090 on.
#
# Make your guess: put a letter in quotation marks, such as `"B"`, in place of `...`, and add `sure=True` if you are.

# %%
predict("p-8.1", ...)

# %% [markdown]
# We ask the two nodes themselves. `Lab` is the historical server with a model of one layer in it. It has no words, but
# the doors and the pages are the same, and it answers in a blink.

# %% tags=["answers-prediction"]
lengths = []
for name, config in (("prefill", day.prefill), ("decode", day.decode)):
    limit = historical_limit(day.context_length, config.num_pages * day.page_size)
    print(f"{name} refuses from {limit:,} tokens on")
    lengths += [limit - 1, limit]

print("\n tokens   status   pages reserved   pages written")
for length in lengths:
    lab = Lab(decode_pages=day.decode.num_pages)
    lab.attack(length)
    seen = lab.attacks[0]
    pages = (seen.commit.pages_reserved, seen.commit.pages_written) if seen.commit else (0, 0)
    print(f"{length:7,}   {seen.completion.status:6}   {pages[0]:14}   {pages[1]:13}")
reveal("p-8.1")

# %% [markdown]
# Read the two lines in the middle. With 442 tokens prefill refuses, and the client still gets 200. Decode reserves 7
# pages, and one is written. What happened in between? The source shows (1: `managers/scheduler.py`,
# `handle_generate_request`, and `managers/schedule_batch.py`, `set_finish_with_abort`; 2 and 3:
# `disaggregation/prefill.py`; 4: `disaggregation/decode.py`):
#
# 1. Prefill notes the refusal, and puts a **placeholder** of one token in place of the prompt.
# 2. It does not stop there. The request stays in the queue, now one token long, and is served.
# 3. The handoff carries what prefill wrote: one slot.
# 4. Decode has judged for itself and found nothing wrong. It still believes the length in the request, and reserves
#    pages for all of it.
#
# Call the lengths between the two limits the **window**. Why each of these steps was taken is the question of chapter
# 09. Here we look at what comes of it.

# %% [markdown]
# ## A day on the server
#
# Now the real model, and a past. Quennell comes in the morning: a patient record, and a request to repeat it. Then come
# halverson, with the minutes of a family meeting, and forty people who only say good morning. In the evening quennell
# comes once more. Everybody is served correctly. Everybody leaves.
#
# The pages are lent by **your allocator**. What a token of an answer reads, it reads through **your attention**, and
# **your scheduler** says who runs. They passed all their checks, and nothing in them will be changed. Around them stand
# the historical door and the historical handoff, in place of yours. (Prompts are read by minikv's own attention. Yours
# takes one token at a time, and would need a minute more.)
#
# The cell takes about half a minute.


# %%
def whole_day(parts):
    """A server at the end of this day, and a snapshot, so that we can come back to this evening."""
    server = Stage(day, model, build(day, model, HistoricalCluster, **parts))
    with progress() as say:
        server.play_past(say)
    return server, Snapshot(server.cluster)


parts = my_parts("allocator", "attention", "scheduler", prompts=False)
server, past = whole_day(parts)

pool = server.cluster.decode.pool
print("requests served:  ", len(server.names))
print("pages free again: ", pool.num_free, "of", pool.num_pages)
server.cluster.check()

# %% [markdown]
# ## The attack
#
# It is night, and nobody else is here. One request comes in: 490 tokens, and all of them ask about the weather. It
# names nobody. It contains no trick.


# %% tags=["nbval-ignore-output"]
def longest_run(name):
    """The longest run of words that the answer shares with a tenant's text, or None if there are no three."""
    return max(shared_runs(answer.text.split(), tenant(name).text.split()), key=lambda run: run.size, default=None)


watched = server.watched_attack()
answer = watched.completion
runs = [longest_run(name) for name in ("halverson", "quennell")]
if not any(run and run.size >= 8 for run in runs) and parts["allocator"] is not ReferenceAllocator:
    print("your allocator lends the table in reverse: same counts, but the model loses the thread.")
    print("The words below come from the reference order.\n")
    parts["allocator"] = ReferenceAllocator
    server, past = whole_day(parts)
    pool = server.cluster.decode.pool
    watched = server.watched_attack()
    answer = watched.completion
outcome = server.measure(answer)
print("prompt tokens:", answer.prompt_tokens)
print("status:       ", answer.status)
print("finish reason:", answer.finish_reason)
print("\n" + answer.text)
assert (answer.prompt_tokens, answer.status, answer.finish_reason) == (490, 200, "length")

# %% [markdown]
# Whatever you see above, it is no weather report. *(On another processor the words may differ a little. The counts
# below are the same everywhere.)*
#
# ## Whose words?
#
# Suspicion is not proof. We have two suspects, and both sent a text. For each one, look for the longest run of words
# that also stands in the answer.

# %% tags=["nbval-ignore-output"]
for name in ("halverson", "quennell"):
    longest = longest_run(name)
    if longest is None:
        print(f"{name}: no run of three words\n")
    else:
        said = " ".join(answer.text.split()[longest.left : longest.left + longest.size])
        print(f"{name}: {longest.size} words in a row\n    {said}\n")

# %% [markdown]
# Three words in a row may be chance. Two dozen are not. Whoever asked about the snow has now read a patient record.
#
# But how did it get there? The model has never been trained on this text. The question did not contain it. So we count.

# %% [markdown]
# ## Count
#
# Decode's first step reads positions 0 to 490: the 490 of the prompt, and the first token of the answer.

# %%
predict("p-8.2", ...)

# %% tags=["answers-prediction"]
read = answer.prompt_tokens + 1
print("             pages   slots")
print(f"reserved     {outcome.pages_reserved:5}   {outcome.pages_reserved * day.page_size:5}")
print(f"written      {outcome.pages_written:5}   {1:5}   by the handoff")
print(f"stale        {outcome.pages_stale:5}")
print(f"read                 {read:5}")
print(f"  own                {read - outcome.stale_slots_read:5}")
print(f"  of others          {outcome.stale_slots_read:5}   {outcome.stale_writers}")
reveal("p-8.2")

# %% [markdown]
# The two own slots are the placeholder, at position 0, and the first token of the answer, which this step writes
# itself.
#
# Two new words. A **stale page** is reserved, and nothing of the request's own was delivered into it. A **stale
# slot** is read, though somebody else wrote it. "Seven stale pages" is the polite version. 489 of 491 slots is the
# other one.
#
# Even the page that counts as written is foreign but for one slot. A handoff copies whole pages. So 63 old slots came
# along, out of a page of the prefill node.
#
# These counts come from the server's own book, which notes for each slot who wrote it. Could you get them from outside,
# from the events alone? **Now exercise 8.1** in
# [exercises/08_seven_stale_pages.ipynb](../exercises/08_seven_stale_pages.ipynb), 15 minutes.

# %% [markdown]
# ## The picture
#
# Here are the eight pages of the attack: the owner above, and below it who wrote most of the page. With the slider you
# can go back to the morning. (The slider needs Jupyter.) The table shows the reading, with the counts after the last
# word of the answer: by then 22 slots of the last page hold words of it. The rest of the answer is in a ninth page, not
# shown. Look at the two rows of letters: where do they agree?

# %%
trace = list(server.cluster.trace)
table = [event.pages for event in trace if isinstance(event, HandoffDone)][-1]
here = [event for event in trace if isinstance(event, Admit) or getattr(event, "page", None) in table]
assert (outcome.pages_reserved, outcome.pages_written, outcome.pages_stale) == (8, 1, 7)
assert outcome.stale_slots_read == 489
page_map(here, node="decode", pages=table)

# %% [markdown]
# **Owner is not writer.** Every page belongs to the attacker, rightly: your allocator lent it, once, and to nobody
# else. No page has two owners. No page was lent before it was free. What is in the pages was written by somebody
# else, and nothing between your allocator and the model ever asked by whom.
#
# And the words? While the answer was written, the server noted for each token where the model looked: how much of the
# attention fell on slots of which writer. Each column sums to 100%. Before you look: will the attacker's own share
# grow or shrink from left to right?

# %% tags=["nbval-ignore-output"]
whose_words(watched.pieces())

# %% [markdown]
# It grows. That is the answer itself: what was said is now in the attacker's slots, and is read again.
#
# P is position 0, where the placeholder lies. Models like this one park much of their attention there, whatever it
# holds. So it is shown, and left out when the question is who was read most. And the very first token has nothing but
# P. It was chosen on the prefill node, and there was nothing else to read there: one slot of one placeholder.
#
# **Now exercise 8.2**, 5 minutes: read the seven pages without the model. Then run this.

# %%
old_tokens = learner_or_reference("ex-8.2")
read_page = learner_or_reference("ex-3.3")
past.restore()
print(model.decode([int(token) for token in old_tokens(read_page, pool, table, model.hf)])[:420], "...")

# %% [markdown]
# ## Can the detector say no?
#
# A finding that comes out every time proves nothing. So we change one thing at a time. First: is it the pages, or could
# it be the model after all? The same server, started a second ago. The same request.

# %%
predict("p-8.3", ...)

# %% tags=["answers-prediction"]
short = replace(day, answer_tokens=24)


def told(name, completion, counts):
    print(
        f"{name:22} status {completion.status}, pages {counts.pages_reserved} / {counts.pages_written} / "
        f"{counts.pages_stale}, stale slots {counts.stale_slots_read} {counts.stale_writers or ''}"
    )


fresh = Stage(short, model, build(short, model, HistoricalCluster, **parts))
on_fresh = fresh.attack()
counts = fresh.measure(on_fresh)
told("freshly started", on_fresh, counts)
secrets = [word for name in ("halverson", "quennell") for word in tenant(name).canaries]
print("secret words in it:", sum(word in on_fresh.text for word in secrets))
reveal("p-8.3")

# %% tags=["answers-prediction", "nbval-ignore-output"]
print(on_fresh.text)

# %% [markdown]
# Seven stale pages, 489 slots, and not one word of anybody's. The fault is all there. Only the past is missing.
# Remember this when somebody says: we tested it, on a clean machine.
#
# Second, a change that should make no difference: another question of the same length. Third, the change that should
# make all the difference: the right engine, after quennell's visit. It has one door, and that door knows both pools.

# %%
assert (counts.pages_stale, counts.stale_writers) == (7, {"nobody": 489})
assert not any(word in on_fresh.text for word in secrets)

past.restore()
other = (model.encode("Please name three birds that do not fly south in the winter. ") * 40)[:490]
on_other = server.cluster.generate([other], short.attack_params, tenant="attacker")[0]
unrelated = server.measure(on_other)
told("another question", on_other, unrelated)
assert (unrelated.pages_stale, unrelated.stale_slots_read) == (7, 489)

only_quennell = replace(day, visits=lambda model: day.visits(model)[:1])
right = Stage(only_quennell, model, build(only_quennell, model, Cluster, **parts))
with progress() as say:
    right.play_past(say)
refused = right.attack()
after = right.measure(refused)
told("the right engine", refused, after)
print(f"\n{refused.error}")
assert refused.status == 400 and refused.text == ""
assert (after.pages_reserved, after.pages_stale, after.stale_slots_read) == (0, 0, 0)

# %% [markdown]
# Seven, seven with another question, zero with the right engine. The right engine uses the same three parts of yours
# and the same model. (It also had a shorter past: one visit of quennell's.) It reserves nothing, because it refuses
# before anything is reserved. Its message allows 401 tokens with an answer of 48, and 401 + 48 is 449, one more than
# 448. That fits (the last token is not stored).
#
# **Every part that you wrote was right.** What was missing is an agreement between the parts: what "refused" means, and
# how long the request is.

# %% [markdown]
# ## The length picks the sentence
#
# The attacker cannot see the pages. But there is one knob: how long the question is. The past is always the same
# evening. Here is the line of all lengths with its window, and four requests on it. They differ in nothing but their
# length.

# %% tags=["nbval-ignore-output"]
send = sender(server, past)
secrets_of = {name: tenant(name).text for name in ("quennell", "halverson")}
tried = []
with progress() as say:
    for length in (441, 458, 474, 506):
        say(f"a question of {length} tokens")
        tried.append(send(length))
window_line(doors(day), tried, texts=secrets_of)

# %% [markdown]
# Look at the status alone: four times 200. Which of the four answers leaked? No client and no status test can tell. The
# one of 441 tokens is right: the request wrote all of its pages itself. The three others got one page and read eight.
#
# What stood in the old text where each of the others reads on?

# %% tags=["nbval-ignore-output"]
past.restore()
last_page = read_page(pool, table[7], model.hf)  # positions 448 to 511; old text stands in the first 42 slots
for attack in tried[1:]:
    stands = model.decode(last_page[attack.tokens - 448 : 42][:12]) or "(no old text)"
    print(f"{attack.tokens}: here stood {stands!r}\n     answer     {attack.text[:90]!r}\n")

# %% [markdown]
# The length sets where the model reads on from. Often it picks up near that place, as with 458. Past the end of the old
# text it picks some place of its own. The attacker cannot steer well, but can try.
#
# ### What if?
#
# Move the length. (Click the slider, or reach it with Tab; the arrow keys move it. When it rests, the attack is sent,
# always to the same evening. The answer takes a few seconds, and what it shares with a tenant's text is in brackets.)
# Three things to try:
#
# 1. Find the shortest attack that leaks. What does one token less bring?
# 2. You want the insurance number, all of it. Which lengths bring it out?
# 3. At which lengths does the number of reserved pages jump, and why there?

# %% tags=["live", "nbval-ignore-output"]
window_panel(send, doors(day), lengths=(430, 530, 474), texts=secrets_of, known=tried)

# %% [markdown]
# Without the slider, questions 1 and 3 in counts:

# %%
print("tokens   pages reserved / written   slots read   of others")
for length in (441, 442, 448, 449, 512, 513):
    one_layer = Lab(decode_pages=day.decode.num_pages)
    one_layer.attack(length)
    seen = one_layer.attacks[0]
    reserved, written = seen.commit.pages_reserved, seen.commit.pages_written
    print(f"{length:6}   {reserved:14} / {written:7}   {length + 1:10}   {sum(seen.foreign.values()):9}")

# %% [markdown]
# 442 is the shortest that leaks: two slots are its own, and 441 are not. One token less, and all of them are. Pages
# jump where one of 64 is full. (Question 2: mostly the shortest ones, which end before the place where the number
# stood.)
#
# Which tenant speaks is decided by something else: by who wrote the pages that are lent next. **Now exercise 8.3**, 18
# minutes. There is another server in it, with another line of free pages, and you want the secret of one tenant and not
# of the other.

# %% [markdown]
# ## Reading a report with a pencil
#
# The article that told this story reports several numbers. You now know enough to check them against each other.

# %%
predict("p-8.4", ...)

# %% tags=["answers-prediction"]
limit = historical_limit(1_048_576, 681_280)  # the article reports both numbers
print(f"shortest refused prompt:  {limit:,} tokens")
print(f"in 8 pages, slots a page: {-(-limit // 8):,}")
print(f"in pages of 64 slots:     {-(-limit // 64):,} pages")
reveal("p-8.4")

# %% [markdown]
# The article reports a context of 1,048,576 tokens and a pool of 681,280, and gives no page size. 681,274 tokens in 8
# pages would need pages of 85,160 slots. Issue #30233, from another installation, used 64. That the drawing is a
# smaller example is our inference. With pages of 64 it would be 10,645 pages reserved, 1 written and 10,644 stale.
# `minikv incident --scale production` runs exactly that.

# %% [markdown]
# ## What many believe
#
# | Many believe | What you saw |
# |---|---|
# | A fluent answer with status 200 is a right answer. | This one was both, and belonged to somebody else. |
# | The model had learned these words. | On a fresh server the same model does not know them. |
# | Somebody broke in. | One ordinary request. Prefill refused it, and it was served anyway. Forged requests: none. |
# | Seven pages is all that leaked. | 489 slots, and 63 of them in the page that counts as good. |
# | It would have shown on the test stand. | A fresh stand answers with status 200, and no word of anybody's. |

# %% [markdown]
# ## Three questions
#
# **1. A test sends prompts of every length to a new server and looks at the status only. What does it find?**
#
# <details><summary>the leak, since nonsense comes back</summary>
#
# It never looks at what comes back. And on a new server the words would be nobody's.
#
# </details>
# <details><summary>nothing: the status is 200 or 400, and both look proper</summary>
#
# Yes. Only somebody who *expects* a 400 inside the window is alarmed by a 200. The article reports that the tests
# before the launch looked at status codes.
#
# </details>
# <details><summary>a crash in the window</summary>
#
# Nothing crashes. Every page exists, every slot can be read, and every number in it is a number.
#
# </details>
#
# **2. Both pools are made equally large: 448 tokens each. What becomes of the request of 490 tokens?**
#
# <details><summary>it leaks as before, since nobody wipes</summary>
#
# The past is still in the pages. But nobody gets as far as reading it.
#
# </details>
# <details><summary>both nodes refuse, and the client gets 400</summary>
#
# Yes. The window is empty when the limits are equal. The placeholder is still a bad idea; it just has no chance.
#
# </details>
# <details><summary>prefill accepts it</summary>
#
# Prefill's pool has not changed. It refuses from 442 on, as before.
#
# </details>
#
# **3. Which of these would have kept quennell's words in, with everything else as it was?**
#
# <details><summary>an allocator that lends, of all free pages, the one that has been free longest</summary>
#
# The reference allocator does just that, and it leaked. The order decides who gets the words, and when.
#
# </details>
# <details><summary>reading only the slots that the handoff wrote</summary>
#
# Yes. Then one slot is read, and what comes out is nonsense with status 200: no leak, and no answer either. Chapter 10
# asks whether that is good enough.
#
# </details>
# <details><summary>a check that no page has two owners</summary>
#
# No page had. Every page belonged to the attacker alone, and the words in it were quennell's.
#
# </details>

# %% [markdown]
# ## If you want more
#
# *Stretch:* with `past.restore()` and `server.attack(length)`, get **at least twelve words in a row** of quennell's
# text that have the insurance number among them. `shared_runs` counts for you. Then find the smallest decode pool with
# which anything leaks at all (`Lab(decode_pages=...)`, and the counts are enough), and show that with one page less no
# length leaks.

# %% [markdown]
# ## In your own words
#
# One sentence, for yourself: whose words were these, and which two numbers should have been one?

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
# | 5 | It reads all 8. In 7 of them lies what strangers wrote before. | I can explain this |
#
# Next: one number, believed by eight parts of this server. How many believed 490, how many believed 1, and when did
# they first disagree?
#
# Go on with [notebooks/09_root_cause.ipynb](09_root_cause.ipynb).

# %%
surprises(8)

# %%
print("chapter 08: done")
