# %% [markdown]
# # 09 Root cause
#
# **Which line was it, and is that the right question?**
#
# When you are through, you can
#
# * **detect** every read of somebody else's slots, inside the running engine, and never cry wolf;
# * **find** the moment at which two parts first disagreed, long before the symptom;
# * **test** an explanation so that it could have failed.
#
# You need: chapter 08. Exercise 9.1 uses *owner* and *writer* from 03, and *page table* and *written* from 04. About 90
# minutes, 55 of them in [exercises/09_root_cause.ipynb](../exercises/09_root_cause.ipynb).
#
# In a hurry, 35 minutes: make each prediction before you run the next cell, do exercise 9.2, and take the reference for
# 9.1.

# %% [markdown]
# ## Two questions from before
#
# One minute each, without looking anything up:
#
# 1. In the incident, decode's first step read 491 slots. How many of them had the request written itself, and which?
# 2. The handoff of the incident held one token. How many slots did it bring, and whose were they?
#
# <details><summary>Answers</summary>
#
# 1. Two: the placeholder at position 0, and the first token of the answer at position 490.
# 2. A whole page of 64: one slot of the request's own, and 63 old ones from the prefill node.
#
# </details>
#
# One new word: the **generation** of a page is how many times it has been lent. Lent for the third time, page 5 is in
# generation 3. What was written in generation 2 is still in it, and has no business there.

# %%
from dataclasses import replace

import torch

from minikv import load_model
from minikv.course import learner_or_reference, my_parts, open_guess, predict, progress, reveal, surprises
from minikv.course.chapters.ch08 import busy_day
from minikv.course.chapters.ch09 import ORDINARY, changes, ordinary_requests, outcome, two_fields, upstream_history
from minikv.course.seats.detector import watched_by
from minikv.incident.history import HistoricalCluster
from minikv.incident.stage import Stage, build
from minikv.trace import Read, lengths
from minikv.viz.lengths import lengths_picture

torch.set_grad_enabled(False)
model = load_model("smollm2")
day = replace(busy_day(), answer_tokens=12)  # counts need fewer words than a leak that is read
print("pages of", day.page_size, "slots; the request that is too long has", day.attack_tokens, "tokens")

# %% [markdown]
# ## A detector
#
# Chapter 08 found out whose words came out, afterwards, with a text to compare. An operator has no such text. Could the
# engine itself notice, at the very moment of the read?
#
# We give each node a **detector** that stands beside its pages. It is told what happens to them, and sees nothing of
# what is in them:
#
# * `lent(page, generation, owner)`: a page was lent.
# * `wrote(slots, writer)`: a request has filled some slots. When a handoff comes, whole pages come, and each of their
#   slots is reported with whoever filled it (-1: nobody knows).
# * `reads(slots, reader)`: a request is about to read some slots. The detector gives back those that are stale.
#
# Here is one. It knows who was lent what.


# %%
class ByOwner:
    def __init__(self, num_pages, page_size):
        self.page_size = page_size
        self.owner = {}

    def lent(self, page, generation, owner):
        self.owner[page] = owner

    def wrote(self, slots, writer):
        pass

    def reads(self, slots, reader):
        return [slot for slot in slots if self.owner[slot // self.page_size] != reader]


# %%
predict("p-9.1", ...)

# %% [markdown]
# **Now exercise 9.1** in [exercises/09_root_cause.ipynb](../exercises/09_root_cause.ipynb), 25 minutes: write a
# detector that finds them all. Then come back. We play the day of chapter 08 once more, with both detectors beside
# the pages, this one and yours. It takes about half a minute.

# %%
Detector = learner_or_reference("ex-9.1")
parts = my_parts("allocator")
watched = watched_by(ByOwner, Detector, historical=True)
server = Stage(day, model, build(day, model, HistoricalCluster, pool=watched, **parts))
with progress() as say:
    server.play_past(say)
    say("the request that is too long")
    answer = server.attack()
print("requests served before:", len(server.names))
print("status:", answer.status, answer.finish_reason)

# %% tags=["answers-prediction"]
number = answer.request_id
pool = server.cluster.decode.pool
found = [len(reported.get(number, ())) for reported in pool.reported]
before = [sum(len(slots) for who, slots in reported.items() if who != number) for reported in pool.reported]
print("                        by owner   yours")
print(f"stale slots reported    {found[0]:8}   {found[1]:5}")
print(f"alarms for all others   {before[0]:8}   {before[1]:5}")
print("by the server's own book:", server.measure(answer).stale_slots_read)
reveal("p-9.1")

# %% [markdown]
# 489 of 489. And for all the other visitors of that day it said nothing.
#
# That is not yet enough. Who cries wolf once a day is switched off after a week. So the detector meets a thousand
# ordinary requests, in a pool that is too small for all that run together: pages are lent again and again, and requests
# must give way and are computed anew.

# %%
engine = ordinary_requests(watched_by(Detector))
node = engine.stats().nodes[0]
alarms = sum(len(slots) for slots in engine.pool.reported[0].values())
print(f"{ORDINARY:,} requests served; a page was lent up to {engine.pool.generation.max()} times")
print("requests that gave way in the middle:", node.preemptions)
print("alarms:", alarms)
assert (found[1], alarms) == (489, 0)

# %% [markdown]
# Such a detector costs little: a few numbers for each slot. minikv keeps one beside its pages at all times, its
# **ledger**, and refuses the read instead of reporting it. The engine of that summer had none. (The source of 0.5.19
# has a check that no page is free twice, or held and free at once. It knows nothing of writers, so we infer that it
# could not see this.)
#
# But a detector stands at the end. It says *that* something is wrong. Where did it begin?

# %% [markdown]
# ## Eight numbers
#
# On its way through this server, the request met eight parts that had to know how long it is. Each acted on a number.
# You know both nodes from chapter 08. Take a pencil and fill in the eight boxes. Then compare with the options.
#
# | client | prefill's door | queue | capacity check | wire | decode's door | page table | attention |
# |---|---|---|---|---|---|---|---|
# | ? | ? | ? | ? | ? | ? | ? | ? |
#
# (The *client* is whoever sent it. The *capacity check* is prefill asking whether its pool can hold the request. The
# *wire* is what the handoff promises. *Attention* counts what its first step on the decode node reads.)

# %%
predict("p-9.2", ...)

# %% [markdown]
# Each part has left a note in the trace: `Length(step, node, request, part, tokens)`. Attention leaves none, but its
# reads are there. `lengths` collects the row for one request.

# %% tags=["answers-prediction"]
row = lengths(server.cluster.trace, number)
print(*(each.tokens for each in row))
reveal("p-9.2")

# %% [markdown]
# And as a picture, in minikv's order of time. Each part stands in the lane of its node. The `router` stands in front of
# both, and takes the request from the client. (In SGLang decode reserves its pages before anything is sent, so
# its door comes before the wire. The numbers are the same. The slider needs Jupyter; the table says the same.)

# %% tags=["answers-prediction"]
assert [each.tokens for each in row] == [490, 490, 1, 1, 1, 490, 490, 491]
lengths_picture(row, title="the request of 490 tokens")

# %% [markdown]
# **Down to 1, and back up to 490. That jump is the incident.** Look at the parts one by one: each did what its own
# number told it to. The queue took in a short request. The capacity check found that one token fits. The wire carried
# one token, and said so. Decode's door saw 490 tokens, which its pool can hold. The page table got eight pages for
# them. Attention read what the page table said. Nobody miscounted.
#
# Ask for "the line with the bug" and people point at the last one, attention, because there the damage is done. But
# from the queue on, two numbers were in use for one request.

# %% [markdown]
# ## The first disagreement
#
# A trace has thousands of events, and nobody will draw you the row when the next fault comes, in other parts. **Now
# exercise 9.2**, 18 minutes: find the first event that shows a request in another length than an earlier one did. Then
# run it on this evening.

# %%
first_disagreement = learner_or_reference("ex-9.2")
events = list(server.cluster.trace)
found_at = first_disagreement(events)
first_read = next(e for e in events if isinstance(e, Read) and (e.node, e.owner) == ("decode", number))
print(f"{len(events):,} events of {len(server.names) + 1} requests")
print("first disagreement:", found_at)
print("events from there to the first stale read:", events.index(first_read) - events.index(found_at))
assert (found_at.request, found_at.part, found_at.tokens) == (number, "queue", 1)

# %% [markdown]
# The queue of the prefill node. Now we know where to read: what was done to this request between prefill's door and its
# queue?

# %% [markdown]
# ## Four places in the source
#
# First in plain words. In the order of the row:
#
# 1. **It says no, and does not stop.** The door finds the prompt too long. It notes a refusal, puts one token in place
#    of the prompt so that the rest costs little, and hands the request on to the queue all the same.
# 2. **It asks whether it is over, and looks where nothing is written.** The next part lets in whoever is not finished.
#    The refusal is in one field, and the question reads another. Then it checks whether the pool can hold the request,
#    and measures the one token.
# 3. **It makes room by a number of its own.** Decode has the request from the client. It looks at its own, larger pool,
#    finds 490 tokens welcome, and reserves eight pages.
# 4. **It hears "success" and asks no more.** The message is for the right request, so it is taken. How much came is not
#    compared with how much was expected. From there on the length is that of the request, not of what was written.
#
# In most servers, those with one node, the first step does no harm: the one token is computed and thrown away, and the
# refusal reaches the client a moment later. The design is deliberate, and tests upstream hold it fast. It became
# dangerous when a second machine came, which had not heard of it.
#
# The two fields of place 2, on a small historical server:

# %%
print(f"{'':38} {'pending verdict':18} {'finished?':12} client was told")
for stage, pending, finished, told in two_fields():
    print(f"{stage:38} {pending:18} {finished!s:12} {told}")

# %% [markdown]
# *Finished* is not *succeeded*, and *refused* was not even *finished*. Two fields tell half the truth each.
#
# **Careful with reports.** The article says of this step: a rejected request *counts as finished*, so it passes. The
# source shows the opposite: it counts as *not* finished, because the verdict waits in the other field, and so it
# passes. The ending is the same, and the repair is not. Whoever mends what the article describes changes the wrong
# condition.
#
# One more belongs to the story. When the transfer is done, prefill says "length" over the verdict that is still
# pending, and its side answers with status 200.
#
# <details><summary>The names in the source, for those who want to read on</summary>
#
# Paths are below `python/sglang/srt/` in version 0.5.19 of
# [sgl-project/sglang](https://github.com/sgl-project/sglang).
#
# | place | file | name, and what it does |
# |---|---|---|
# | 1 | `managers/scheduler.py` | `handle_generate_request` calls the next one, then `_add_request_to_queue` |
# | 1 | `managers/schedule_batch.py` | `set_finish_with_abort`: one token for the prompt, the verdict to `to_finish` |
# | 2 | `managers/schedule_batch.py` | `finished` asks for `finished_reason`. That is the other field |
# | 2 | `disaggregation/prefill.py` | `_check_if_req_exceed_kv_capacity` measures the prompt as it is by then |
# | 3 | `disaggregation/decode.py` | `pop_preallocated` takes pages for the prompt as the client sent it |
# | 4 | `disaggregation/decode.py` | `_commit_transfer_to_req` compares the identity, and nothing else |
# | 4 | `disaggregation/decode_schedule_batch_mixin.py` | `prepare_for_prebuilt` takes the length from the request |
# | after | `disaggregation/prefill.py` | `process_disagg_prefill_inflight_queue` says "length" over the verdict |
#
# </details>

# %% [markdown]
# ## Who knew, and when
#
# The fault did not come out of nowhere. Much of it stood in public threads for weeks. Before you look:

# %%
predict("p-9.3", ...)

# %% tags=["answers-prediction"]
reveal("p-9.3")

# %% [markdown]
# What was public, as far as we have read it. Each entry has a mark for how it is known. (All dates are of 2026. *Open*
# means open in the records that were read. A thread may have moved on since.)

# %% tags=["answers-prediction"]
upstream_history()

# %% [markdown]
# Two lessons, and neither is about clever people or careless ones. **A symptom has many descriptions**: waiting, wrong
# status, lost memory, nonsense, a stranger's words. Most threads began at one of these. Only the row of lengths
# shows that they are one. And **a merged fix does not mean that somebody understood it**: what closed the leak was
# written for something else. The receiver still believed what it was told; a change that makes it count was open when
# the records were made.

# %% [markdown]
# ## The repair, as a diff
#
# Not the upstream change, but the same two places in minikv's terms. First, a refusal ends the matter:
#
# ```diff
#   def take_in(request):
#       try:
#           check_length(request, pool)
#       except Rejected as verdict:
# -         request.prompt = [PLACEHOLDER]
# -         request.to_finish = verdict
# +         answer(request, verdict)
# +         return
#       queue.append(request)
# ```
#
# Second, the receiver counts before it believes, against a number that nobody on the way could change. (The digest of
# chapter 07 comes on top.)
#
# ```diff
#   def receive(request, handoff):
#       if handoff.request != request.number:
#           raise HandoffRefused
# +     expected = request.length_at_the_door
# +     if handoff.num_tokens != expected or slots_in(handoff) < expected:
# +         raise HandoffRefused
#       import_pages(handoff)
# -     written = len(request.prompt)
# +     written = handoff.num_tokens
# ```
#
# The real ones are short, too: `_submit` in `minikv/frontend.py`, and `verify` in `minikv/disagg/handoff.py`. Chapter
# 10 asks which of them you would ship first.

# %% [markdown]
# ## Is it true?
#
# An explanation that fits everything you have seen is easy to find. The question is what it forbids. **Now exercise
# 9.3**, 12 minutes: three hypotheses, each with one change and an expectation that could fail. One of the changes must
# do nothing.

# %% [markdown]
# ## Which line was it?
#
# History had eight faults at once. In exercise 9.3 you met their list. We mend one, leave the other seven as they were,
# and look whether the ending is another one: the status, the pages, the slots that are read, or the answer.

# %%
predict("p-9.4", ...)

# %% tags=["answers-prediction"]
as_it_was = outcome("unchanged")
mended = [name for name in changes() if name.startswith("without ")]
for name in mended:
    words = changes()[name].words.removeprefix("this is mended: ")
    print(f"{outcome(name) != as_it_was!s:6} {words}")
differ = sum(outcome(name) != as_it_was for name in mended)
print("\nmend one of them, and the ending is another one:", differ, "of", len(mended))
reveal("p-9.4")
assert differ == 8

# %% [markdown]
# So which line was it? Any of the eight, and that means: the question is not a good one. It finds one answer and stops.
# (The endings are not all *good*. How they differ is the subject of chapter 10, so do not look yet.)
#
# Better are three questions. What **caused** it: without which act would nothing have begun? Under which **conditions**
# could the act do harm? And what **masked** it for nearly two weeks, as the article reports?
#
# | | in this incident |
# |---|---|
# | cause | A refused request goes on under another length, and the receiver believes a length that nobody delivered. |
# | condition | Two pools of different sizes. A past, left in the pages. A prompt inside the window. |
# | mask | Status 200, a fluent answer, and tests that looked at the status. |
#
# The best question comes last: **which sentence did no part ever say aloud?** Here it is "this request is 490 tokens
# long, and all 490 are here". One number, written down once, and compared at every handover.

# %% [markdown]
# ## The post-mortem
#
# The report after an incident is called a post-mortem. A good one is **blameless**: it names parts and decisions, never
# persons, because whoever fears for their name tells less. [docs/post-mortem.md](../docs/post-mortem.md) has a template
# of one page, and how it is marked. Here is the short form. Five sentences:

# %%
post_mortem = {
    "symptom": "...",
    "mechanism": "...",
    "why unseen": "...",
    "what stops it": "...",
    "what remains": "...",
}
print(sum(bool(text.strip(". ")) for text in post_mortem.values()), "of 5 sentences are written")

# %% [markdown]
# <details><summary>One way to write it (after yours)</summary>
#
# * **Symptom.** A question of 490 tokens was answered with status 200 and with words from another tenant's text.
# * **Mechanism.** Prefill refused the prompt and went on with one token; decode had reserved pages for 490, took one
#   written slot for a complete handoff, and read 489 slots that others had written.
# * **Why unseen.** The refusal was overwritten by a proper ending, the answer was fluent, tests looked at the status,
#   and a new server has nothing to leak.
# * **What stops it.** A refusal that ends the request, and a receiver that compares what came with a length written
#   down at the door.
# * **What remains.** Old contents stay in pages that are lent on, so the next short handoff finds them again; whether
#   anybody was harmed cannot be told from status codes.
#
# </details>
#
# **What would you do if you found such a fault in a real service?** Not probe it: a probe that works hands you
# somebody's secrets. [docs/conduct.md](../docs/conduct.md) is one page on what to do instead: only servers that you
# own, whom to tell, and what a good disclosure looks like.

# %% [markdown]
# ## Your guess
#
# Nine chapters ago you wrote one sentence: how could this happen? You knew little. Here it is.

# %%
my_guess = open_guess()

# %% [markdown]
# Which part of it was right? Which word would you change today? Most first guesses name a *person* (somebody broke in)
# or the *model* (it had learned the words). Few name a number that two parts did not share.

# %% [markdown]
# ## What many believe
#
# | Many believe | What you saw |
# |---|---|
# | One bug, one line. | Eight faults, and mending any one of them changes the ending. |
# | The last line before the symptom is the cause. | Two parts had disagreed before the first page was lent. |
# | The owner of a page wrote what is in it. | A detector that asks for the owner finds 0 of 489. |
# | Finished means succeeded. | The refused request was not finished, and was served. |
# | A merged fix means that somebody understood the fault. | The fix was written for another one. |

# %% [markdown]
# ## Three questions
#
# **1. All eight parts of a server hold the same length for a request, 300. Can its answer still contain a stranger's
# words?**
#
# <details><summary>no: the jump is what does it</summary>
#
# The jump did it *here*. Agreement on a length says how much is to be read. It does not say that it was written.
#
# </details>
# <details><summary>yes, if a page is lost on the way and nobody counts</summary>
#
# Yes. All believe 300, and rightly so: that is the length. But only 256 slots came. Your detector sees it at the read,
# and if decode reads only what came, `first_disagreement` sees it, too.
#
# </details>
# <details><summary>yes, if two pages have one owner</summary>
#
# A request owns many pages, always. That is no fault.
#
# </details>
#
# **2. A colleague mends place 1 and writes: "root cause fixed". What would you ask?**
#
# <details><summary>nothing: without the placeholder there is no incident</summary>
#
# Not this one. But the receiver still believes every length. With another sender and another fault, the same pages are
# read.
#
# </details>
# <details><summary>why it was not done by wiping the pages</summary>
#
# Wiping changes what is read, not how much: it takes the words away and leaves nonsense with status 200. (Chapter 10
# measures it.)
#
# </details>
# <details><summary>what happens the next time somebody delivers less than was promised</summary>
#
# Yes. A cause is mended, and the conditions that made it a leak are all still there.
#
# </details>
#
# **3. Somebody expects: "after the change, the number of stale slots will be between 0 and 489". They run it and see
# 489. What have they learned?**
#
# <details><summary>that the change does nothing</summary>
#
# It may be so. But the sentence did not say so. It would have been as pleased with 0.
#
# </details>
# <details><summary>nothing from the expectation: it could not have failed</summary>
#
# Yes. The number is worth something, and the expectation is not. Written before the run, "it will be 0" would have
# taught them that they were wrong.
#
# </details>
# <details><summary>that their explanation is right</summary>
#
# Which number would have shown that it is wrong?
#
# </details>

# %% [markdown]
# ## If you want more
#
# *Stretch, at the end of the exercise notebook:* a log of 10,000 lines of a server with this fault. Nobody kept the
# answers, so there are no words to look for. Find the requests that were affected, from the log alone. Target: every
# one, and no other.

# %% [markdown]
# ## In your own words
#
# One sentence, for yourself: why is "which line was it" not the right question?

# %%
my_sentence = "..."

# %% [markdown]
# ## The story so far
#
# | step | The incident, as the article tells it | state |
# |---|---|---|
# | 1 | Somebody sends a prompt that is longer than the pool of the machine that reads prompts. | I can explain this |
# | 2 | The server does not turn it away. It puts a stand-in of one token in its place. | I can explain this |
# | 3 | The next part asks only whether that request is over. It is, so it may pass. | I can explain this (see below) |
# | 4 | A second machine makes room for 8 pages. It is sent one. | I can explain this |
# | 5 | It reads all 8. In 7 of them lies what strangers wrote before. | I can explain this |
#
# All five. (Step 3 is told as the article tells it. By the source the request *is not* over, and that is why it
# passes.)
#
# In chapter 10 you put your own door and your own receiver back, and find out what they would have stopped,
# and what they would not.

# %%
surprises(9)

# %%
print("chapter 09: done")
