# %% [markdown]
# # 10 The fix
#
# **Which guards would you ship first, and how would you know that they hold?**
#
# When you are through, you can
#
# * **say** of each guard what it stops, what it only hides, and what passes it;
# * **close** the incident with parts that you wrote before you had seen it;
# * **test** for isolation so that a green test means something.
#
# You need: chapters 08 and 09. Your door (06) and your receiver (07) come back. About 100 minutes, 55 of them in
# [exercises/10_the_fix.ipynb](../exercises/10_the_fix.ipynb).
#
# In a hurry, 40 minutes: make the bet, look at the map under it, do exercise 10.1, and read the list for Monday.

# %% [markdown]
# ## Two questions from before
#
# One minute each, without looking anything up:
#
# 1. A handoff arrives, its digest is right, and the network says success. What is still to be compared, with what?
# 2. Page 5 is in generation 3. Somebody writes into it with a page table from generation 2. What should happen?
#
# <details><summary>Answers</summary>
#
# 1. The tokens promised and received, with the length that was written down at the door. A digest speaks of what was
#    sent.
# 2. The write is refused. The page is somebody else's by now.
#
# </details>
#
# One new word for now: a **guard** is a check that stops one way in which things go wrong. Chapter 09 counted eight
# defects. Against each there is a guard.

# %%
from collections import Counter

import torch

from minikv import load_model
from minikv.course import learner_or_reference, mine, my_parts, predict, progress, reveal, surprises
from minikv.course.chapters.ch10 import (
    DEFECTS,
    HARMFUL,
    SECRETS,
    TEXTS,
    OneTruth,
    Parts,
    Stand,
    canaries,
    cell,
    compare_bets,
    reason_of,
    stage_with,
    stand_of,
    zeroed,
)
from minikv.course.seats.guards import AsHistory, GuardedCluster
from minikv.incident.defects import DEFECTS as IN_WORDS
from minikv.incident.defects import GUARDS
from minikv.incident.matrix import Laboratory, run_matrix
from minikv.incident.scales import POCKET
from minikv.incident.scenarios import SCENARIOS, STREAMED
from minikv.incident.snapshot import Snapshot
from minikv.incident.status_test import status_and_content
from minikv.incident.wipes import Wipe
from minikv.incident.wiping import Wiping, measure_effects
from minikv.incident.wiping_cost import ARTICLE_TRAFFIC, measure_speed
from minikv.viz.matrix import matrix_map, one_guard_map
from minikv.viz.verdicts import verdicts

torch.set_grad_enabled(False)
model = load_model("smollm2")
for letter, defect in IN_WORDS.items():
    print(f"{letter}  defect: {defect}\n   guard:  {GUARDS[letter]}")

# %% [markdown]
# ## One guard at a time
#
# We play the incident on the historical server, at the smallest of its three scales, with strangers' words in both
# pools. The prompt is too long for prefill's pool and not for decode's. One guard is on, the other seven defects stay.
#
# **Place your bets.** For each guard three questions: do a stranger's words come out? Is the client right or loudly
# refused? Is the status true? Write three letters, such as `"nyy"`, in place of `"..."`. You need not fill in all of
# them. Nobody scores it.

# %%
print(f"prefill pool: {POCKET.prefill.num_pages * POCKET.page_size} slots, in pages of {POCKET.page_size}")
print(f"decode pool:  {POCKET.decode.num_pages * POCKET.page_size} slots")
print(f"the prompt:   {POCKET.attack_tokens} tokens")

bet = {
    "a": "...",
    "b": "...",
    "c": "...",
    "d": "...",
    "e": "...",
    "f": "...",
    "g": "...",
    "h": "...",
}

# %%
predict("p-10.1", ...)

# %% [markdown]
# With a random model nobody can read words. So a leak is found in another way: the run is repeated after other pasts,
# in which only the strangers said something else. If the answer changes, it hangs on their words.

# %% tags=["answers-prediction"]
laboratory = Laboratory()
alone = run_matrix(["", *GUARDS], laboratory=laboratory)
rows = [*alone.cells, *alone.streamed]
compare_bets({letter: alone.cell(letter, "over-length") for letter in GUARDS}, bet, GUARDS)
reveal("p-10.1")

# %% [markdown]
# In the incident almost any guard would have done. Eight holes lined up, and one closed hole is enough. But the
# incident is not the only thing that can go wrong between two machines. Here are six scenarios, and a seventh column:
# the first one again, with a client who reads along.

# %%
for scenario in (*SCENARIOS.values(), STREAMED):
    print(f"{scenario.name:<22} {scenario.title}")

# %% [markdown]
# The first row is history. Read the columns: which scenario is hardest to stop?

# %% tags=["answers-prediction"]
one_guard_map(rows, GUARDS)

# %% tags=["answers-prediction"]
for letter in "fgh":
    seen = alone.cell(letter, "over-length")
    read_along = alone.cell(letter, STREAMED.name)
    print(f"{letter}: status {seen.status}, slots of others read: {seen.stale_slots_read}; ", end="")
    print(f"read along: status {read_along.status}, {read_along.verdict}")
assert alone.cell("h", STREAMED.name).leaked and not alone.cell("h", "over-length").leaked

# %% [markdown]
# What to notice:
#
# * **Refusing for good, one predicate, the recorded length, one truth about capacity (a to d)** are four doors. Any one
#   of them stops the incident, and none of them stops anything else. In the other scenarios nobody was too long.
# * **Complete, or nothing (e)** stops three more, before a word is spoken. It is the only guard that looks at what
#   came.
# * **Read only what is written (f)** takes the words away, and nothing else. The client gets nonsense with status 200.
#   It *hides*.
# * **The worst status (h)** comes too late: the slots were read. If the answer is held back until its end, nobody
#   hears it. Whoever reads along has read it.
# * **Generations, on every read and write (g)** is the only one that stops *late-write*. It asks whose page it is at
#   the moment of the write, and in *late-write* nothing else is wrong.
#
# And one that is easy to miss: with generations alone, whoever reads along hears one word before the refusal. It is
# nobody's, only wrong: prefill said it about its stand-in.

# %% [markdown]
# ## Why not simply wipe?
#
# It is the first thing that most people propose. Fill every page with zeros when it comes back, on both nodes, and
# there is nothing to leak. We do it, at the article's scale, with the real model and quennell's record in the past.

# %%
predict("p-10.2", ...)

# %% tags=["answers-prediction"]
with progress() as say:
    say("quennell's visit, on a server that wipes")
    wiped = zeroed(model)
    wiped.play_past()
    say("the request of the incident")
    watched = wiped.watched_attack()
counts = wiped.measure(watched.completion)
print("status:", watched.completion.status, "   stale slots read:", counts.stale_slots_read, counts.stale_writers)
on_zeros = watched.attention["nobody"]
print("attention on slots that hold zeros:", "most of it" if on_zeros > 0.5 else "less than half")
reveal("p-10.2")

# %% tags=["answers-prediction", "nbval-ignore-output"]
print(f"{on_zeros:.0%} of the attention, and this is the answer:\n{watched.completion.text}")

# %% [markdown]
# No word of quennell's. But look at the status. The slots are still read, all of them, and what comes back is nonsense
# that claims to be an answer. The fault is as alive as before, and nobody will ever report it.
#
# And the other scenarios? Four ways: to wipe nothing, zeros on both nodes, zeros on the decode node alone, and NaN
# ("not a number", which spoils every sum that it gets into). All eight defects are in. In brackets: slots read that
# still held a stranger's words, of all stale slots read.

# %%
predict("p-10.3", ...)

# %% tags=["answers-prediction"]
ways = (None, Wipe(0.0, "free"), Wipe(0.0, "free", ("decode",)), Wipe(float("nan"), "free"))
effects = tuple(measure_effects(ways, model=laboratory.model))
print(Wiping((), effects).text.partition("\n\n")[0])
reveal("p-10.3")

# %% [markdown]
# * **On the decode node alone** it leaks still. A handoff carries whole pages, so the rest of its first page comes from
#   the prefill node, and brings what lay there. (In an incident with pages of 64 slots: slots 1 to 63 of page 0.)
# * **The late writer** does not care. It comes after the wipe.
# * **Who waits, waits.** A wipe does not answer anybody.
# * **NaN** is loud where zeros are silent. That is worth something, in tests.
#
# *Right by luck* means that too few slots were wrong to change a token.
#
# What does it cost? Ordinary traffic with the real model. The share of the time is steadier than the speed; your
# machine decides both.

# %% tags=["nbval-ignore-output"]
speeds = measure_speed(ARTICLE_TRAFFIC, [Wipe(0.0, "free")], repetitions=1)
for speed in speeds:
    print(f"{speed.wipe:<20} pages wiped: {speed.pages_wiped:3}   time spent on it: {speed.share:.2%}")

# %% [markdown]
# Little, here. Pages come back rarely, and a page is small beside the weights that each step reads. So wiping is no bad
# idea: as a second line, on both nodes, for what nobody has thought of. But it is not the fix. It changes what is read
# by mistake. A fix changes *that* it is read.

# %% [markdown]
# ## Your door and your receiver
#
# You wrote a door in chapter 06 and a receiver in chapter 07, before you knew of this incident. Chapter 08 took them
# out. Now they come back into the historical server. All eight defects are still in it. (`AsHistory` adds nothing to
# them. `OneTruth` tells each door one number more: the smallest pool of all nodes.)

# %%
admit = learner_or_reference("ex-6.1")
receive = learner_or_reference("ex-7.1")
setups = {
    "": (AsHistory, None, None),
    "1": (AsHistory, admit, None),
    "2": (OneTruth, admit, None),
    "3": (AsHistory, None, receive),
    "4": (OneTruth, admit, receive),
}
names = {
    "1": "your door at each node, told its own pool",
    "2": "your door, told the smallest pool",
    "3": "your receiver",
    "4": "both: your door, your receiver",
}


def played(number, make, door, receiver):
    return [cell(make, each, number, door=door, receiver=receiver) for each in (*SCENARIOS.values(), STREAMED)]


yours = [seen for number, setup in setups.items() for seen in played(number, *setup)]
print(one_guard_map(yours, names).text)

# %% [markdown]
# Look at the second line. **Your door is right, it stands at both nodes, and it leaks.** Prefill's door says no,
# decode's says yes, and each is right about its own pool. One number more, and the same door closes the incident.
#
# Your receiver closes it, too, without knowing anything of pools, and the two others in which something is missing or
# comes twice.
#
# Here they are at the article's scale, with the real model and all of your parts.

# %%
parts = my_parts("allocator", "attention", "scheduler", prompts=False)
with progress() as say:
    say("quennell's visit")
    closed = stage_with(GuardedCluster, model, guards=OneTruth(), admit=admit, receive=receive, **parts)
    closed.play_past()
    past = Snapshot(closed.cluster)
    endings = {"both": closed}
    for name, setup in {"receiver": {"receive": receive}, "door, own pool": {"admit": admit}}.items():
        endings[name] = stage_with(GuardedCluster, model, **setup, **parts)
        past.restore(endings[name].cluster)
    print(f"{'yours':<16} status   reserved / written / stale pages   stale slots read")
    for name, stage in endings.items():
        say(f"the request of the incident: {name}")
        done = stage.attack()
        found = stage.measure(done)
        pages = f"{found.pages_reserved} / {found.pages_written} / {found.pages_stale}"
        print(f"{name:<16} {done.status:6}   {pages:<34} {found.stale_slots_read:3}")

# %% [markdown]
# With both, nothing is even reserved. With the receiver alone, pages are reserved, and given back when too little
# comes; the client hears 502. With two doors that know only themselves it is history again.
#
# Two scenarios are left open. In *late-write* a writer comes to a page that is not its client's any more. In
# *lost-abort* prefill has given up, and the client waits for decode. **Now exercise 10.1** in
# [exercises/10_the_fix.ipynb](../exercises/10_the_fix.ipynb), 20 minutes: write the two guards that the map still asks
# for. Then come back.

# %%
MyGuards = learner_or_reference("ex-10.1")
names["5"] = "both, and your guards"
yours += played("5", MyGuards, admit, receive)
last = [seen for seen in yours if seen.guards in ("", "4", "5")]
print(one_guard_map(last, names).text)
print("\nThe reason:", reason_of(MyGuards))
assert all(seen.verdict in ("right", "refused") for seen in last if seen.guards == "5")

# %% [markdown]
# There is no single right choice. Read your reason again with three questions. Which scenario would each guard *not*
# have stopped? What does it cost when nothing is wrong? And who hears of it when it strikes? A typical good pair to
# begin with is the door that knows every pool, and the receiver that counts tokens. What it leaves open is the late
# writer.

# %% [markdown]
# ## How would you know?
#
# The fix is in. Next month somebody changes a line. Which test turns red?
#
# The article reports that the tests before its launch looked at the status. Here is such a test, on nine prompt lengths
# around all limits, beside one that looks at the answer. It compares each answer with that of a server that never had
# another client. P is passed, F is failed.

# %%
judged = status_and_content(model=laboratory.model)
print(verdicts(judged.rows).text)
assert judged.failed("historical", by="status") == 0 < judged.failed("historical", by="content")

# %% [markdown]
# The status test has tried every length that matters, and sees nothing. It cannot: 200 looks the same on a right answer
# and on a stranger's.
#
# So a test must look at the words. A **canary** is a word that only one tenant can have brought along. If it turns up
# with somebody else, there is a hole. For a while we use a model in which a leak is a leak of words, and which is
# quick: it has one layer, built by hand, and **says again what stands five words back**. (Some words it says in another
# way: *the* comes out as *a*.) It knows nothing. Whatever it says, it has read in the pages.

# %%
print("secrets:", SECRETS)
print("canaries of ada:", ", ".join(sorted(canaries("ada"))))
for title, defects in (("the right engine", None), ("e, f and g are in", "efg"), ("all eight are in", "abcdefgh")):
    print(f"\n{title}")
    for wire, tokens in (("works", 18), ("loses the last page", 18), ("delivers twice", 18), ("works", 31)):
        server = Stand(defects).start(wire=wire)
        server.visit("ben", "cleo")
        server.visit("ada")
        answer = server.ask(tokens)
        out = {word: None for word in answer.words if any(word in canaries(name) for name in TEXTS)}
        print(f"  the wire {wire:<20} {tokens} tokens: {answer.status} {answer.text!r}", end=" ")
        print("canaries:", ", ".join(out) or "none")

# %% [markdown]
# Real leaks are cut and mixed. Ada's secret is four words long. Nobody who looks for the whole of it would find it in
# any of these answers.
#
# ### Why content is not enough
#
# Put one single defect into an otherwise right server. Most of them change no answer at all: the other seven guards
# stand in front. That is what guards are for. And it means that a test of answers stays green while guards are lost one
# by one, until the day on which the last one goes.
#
# For this there is a second layer. An **invariant** is a rule that must hold at every moment, whatever happens around
# it: *no more is readable than was written*, *a refusal is final*. To see it broken, ask one part alone, and play its
# neighbours. **Now exercise 10.2**, 25 minutes: tests in two layers.

# %%
Suite = learner_or_reference("ex-10.2")
print("harmful together            red by content")
for name in HARMFUL:
    print(f"{name:<28}{'red' if Suite().content(stand_of(name).start) else 'green'}")
print("\none defect alone   by content   by its parts")
seen_by_content = ""
for letter in DEFECTS:
    by_content = bool(Suite().content(Stand(letter).start))
    seen_by_content += letter if by_content else ""
    by_parts = bool(Suite().invariants(Parts(letter)))
    print(f"{letter:<19}{'red' if by_content else 'green':<13}{'red' if by_parts else 'green'}")
print("\nthe right engine:", "red" if Suite().content(Stand(None).start) or Suite().invariants(Parts()) else "green")
print(f"single defects that your answers show: {len(seen_by_content)} of {len(DEFECTS)}")

# %% [markdown]
# Green tests prove that what they asked for holds. They do not prove isolation. So say with a green test what it has
# not asked. (minikv tests itself in the same two layers, with more of everything: `minikv.incident.isolation`.)

# %% [markdown]
# ## All 256
#
# Eight guards can be on or off: 256 sets, against six scenarios. That is too much to read, and a good task for a
# program.

# %%
predict("p-10.4", ...)

# %% [markdown]
# **Now exercise 10.3**, 10 minutes: find the smallest sets of guards that leave nothing open. Then run all of it, here.
# It takes about half a minute. `minikv incident --matrix --json` gives you the same data in a terminal.

# %% tags=["answers-prediction"]
smallest_sets = learner_or_reference("ex-10.3")
done = Counter()
with progress() as say:

    def advance():
        done["cells"] += 1
        if done["cells"] % 128 == 0:
            say(f"{done['cells']:,} of {256 * 7:,}")

    matrix = run_matrix(laboratory=laboratory, advance=advance)
data = matrix.as_json()
found = data.pop("smallest_covering_sets")
covering = {row["guards"] for row in data["combinations"] if matrix.covers(row["guards"])}
print(f"{len(covering)} of 256 sets leave nothing open. The smallest, by your program:")
for guards in smallest_sets(data):
    print(f"  {guards}: {'; and: '.join(GUARDS[letter] for letter in guards)}")
assert sorted(smallest_sets(data)) == sorted(found)
reveal("p-10.4")

# %% [markdown]
# Now the map is worth a look. One square for each scenario: guards a to d down, e to h across.

# %% tags=["answers-prediction"]
matrix_map([*matrix.cells, *matrix.streamed])

# %% [markdown]
# Generations (g) are in every smallest set: nothing else stops the late writer. Beside them somebody must tell the
# client that prefill gave up. Either the receiver's side does (e), or whoever merges the statuses (h).
#
# Would you ship only these two? The map knows six scenarios. The seventh column does not count towards the sets. Does
# each of the smallest sets hold there?

# %%
for guards in found:
    seen = matrix.cell(guards, STREAMED.name)
    print(f"{guards}, read along: {seen.verdict}, status {seen.status}, stale slots read: {seen.stale_slots_read}")

# %% [markdown]
# Both keep strangers' words in. But one of them lets a word go out before it refuses, and the client has read a
# beginning that was never true. Two guards are the fewest, and the fewest are seldom enough: put a door in front that
# knows every pool, and nothing begins that must be taken back.

# %% [markdown]
# ## The same sentence, twelve years earlier
#
# > **Heartbleed, 2014.** A client sends a small message and asks to have it sent back: "here are 16,384 bytes". It
# > sends one. The server takes the length from the request, not from what has arrived, and answers with whatever lies
# > in its memory behind that one byte: passwords, keys, other people's pages. (CVE-2014-0160, OpenSSL.)
#
# *The length was taken from the request, not from what was written.* Another program, other people, the same sentence.
# Where in **your** code does somebody believe a length that somebody else has sent? Name one place.

# %% [markdown]
# ## A list for Monday
#
# Five checks for a server of one's own. Marks: (V) read in the source or its documentation, (I) inferred from it.
#
# 1. **Read two numbers of each node, at the node itself.** How many tokens does its pool hold, and what context does it
#    promise? SGLang: `/server_info` has `max_total_num_tokens` and `max_req_input_len`, `/v1/models` has the context.
#    vLLM: `/metrics` has `vllm:cache_config_info`, `/v1/models` the context. (V) A router in front may answer for
#    neither. (I)
# 2. **Compare them.** A pool smaller than the context means that some promised lengths are refused. (V) Two nodes with
#    different limits mean a window. With SGLang before 0.5.20 it is the window of this course: from prefill's limit up
#    to the smaller of decode's limit and the context. (I)
# 3. **Search the log** for `len(prefill_state_indices) = 1, len(dst_state_indices) = ` and a number in the thousands.
#    The line is in the source (V); that it is a sign of this incident is a conclusion (I).
# 4. **Update, or close the window.** SGLang 0.5.20 refuses in time. (V) Until then: a context no longer than the
#    smallest limit, equal pools (`--max-total-tokens`), or a count of tokens at the gateway. (I) From 0.5.21 on,
#    `--disaggregation-enable-kv-checksum` compares what came. It is off unless you ask for it. (V)
# 5. **Test with an empty house.** On a server of your own, with nobody else on it: lengths on both sides of each limit,
#    streamed and not. Look at the status, at errors inside the stream, and at the words. Keep hashes, not texts. (I)
#
# [docs/conduct.md](../docs/conduct.md) says what to do if you find something.

# %% [markdown]
# ## What remains open
#
# * **Upstream.** The independent check, that decode compares how much came, was still open in the records that were
#   read, and is not in 0.5.21 or 0.5.23. What closed the leak was written for another fault (chapter 09).
# * **Your guards.** Your fence stands at the decode node. Prefill's pool has none, and hands its leftovers on with
#   every last page. Nobody reads them, as long as everybody keeps to what was written.
# * **The tests.** Six scenarios are the ones that somebody thought of.
# * **The people.** Who was affected cannot be read from a log of status codes.

# %% [markdown]
# ## What many believe
#
# | Many believe | What you saw |
# |---|---|
# | Zeroing would have fixed it. | Nonsense with status 200; a late writer comes after it; on one node alone it leaks. |
# | Zeroing costs too much. | A small share of the time, measured on your machine. |
# | No canary, no leak. | Secrets come out cut and mixed, and some leaks show only as a changed answer. |
# | A 4xx means that nothing leaked. | Whoever read along had the words before the status. |
# | Green tests prove isolation. | Most single defects change no answer. |
# | A right door at each node is enough. | Two right doors, two pools, and the incident. |

# %% [markdown]
# ## Three questions
#
# **1. Two guards are on: read only what is written (f), and the worst status (h). The request of the incident comes. Is
# f worth anything here?**
#
# <details><summary>no: h refuses anyway</summary>
#
# For a client who waits for the whole answer. What does one hear who reads along?
#
# </details>
# <details><summary>yes: whoever reads along hears nonsense and not a stranger</summary>
#
# Yes. A guard that hides is no fix, and can still be a good second line. What it must not be is the only one.
#
# </details>
# <details><summary>no: f makes the status a lie</summary>
#
# The status is h's business, and h tells the truth here. f says nothing about a status.
#
# </details>
#
# **2. A page is lent again only when every writer that was under way to it has reported back. Which scenario does that
# close, and what is its price?**
#
# <details><summary>late-write; pages stay away longer, and a writer that never reports keeps them for ever</summary>
#
# Yes. So there is a time limit, and after it you are where you were. That is why upstream has one, and why a fence is
# worth having beside it.
#
# </details>
# <details><summary>short-transfer; the receiver waits for the rest</summary>
#
# The lost page does not come. Waiting for it is the scenario in which the client never hears anything.
#
# </details>
# <details><summary>over-length; the placeholder's writer is slow</summary>
#
# It is quick: one token. It reports back at once, and nothing is wrong with its write.
#
# </details>
#
# **3. Your content tests have been green for a year. A colleague removes the receiver's check, since "the door refuses
# those anyway". Which of your tests turns red?**
#
# <details><summary>the content tests, on the next over-long request</summary>
#
# The door still refuses it. No answer changes.
#
# </details>
# <details><summary>none, and that is right: nothing happens</summary>
#
# Nothing happens today. One guard less stands between a lost page and a client.
#
# </details>
# <details><summary>the question to the receiver alone: here is a handoff with a page missing</summary>
#
# Yes. The neighbours would never ask it that. The test does.
#
# </details>

# %% [markdown]
# ## If you want more
#
# *Stretch, at the end of the exercise notebook:* cover all scenarios at a cost of **under 1 %**, measured in one run.
# Or invent a **ninth defect**, one that all eight guards let through. (The late writer of 7.1 is a place to start. So
# is prefill's pool.)

# %% [markdown]
# ## In your own words
#
# One sentence, for yourself: which two guards would you ship first, and what would still get through?

# %%
my_sentence = "..."

# %% [markdown]
# ## The story, complete
#
# | step | The incident, as the article tells it | state |
# |---|---|---|
# | 1 | Somebody sends a prompt that is longer than the pool of the machine that reads prompts. | I can explain this |
# | 2 | The server does not turn it away. It puts a stand-in of one token in its place. | I can explain this |
# | 3 | The next part asks only whether that request is over. It is, so it may pass. | I can explain this (see 09) |
# | 4 | A second machine makes room for 8 pages. It is sent one. | I can explain this |
# | 5 | It reads all 8. In 7 of them lies what strangers wrote before. | I can explain this |
#
# And what would have stopped it, step by step: a door that knows every pool (1), a refusal that is final (2), one
# predicate for all (3), a receiver that counts (4), generations on every read and write (5).
#
# And here is your engine once more, with your door and your receiver in their places:

# %%
same = mine(model=model)

# %% [markdown]
# This is the end of the story. You have built the parts of a serving engine, seen them leak without a fault of their
# own, found out where two of them first disagreed, and closed the hole so that a test notices when it opens again.
#
# Five electives are planned: sharing pages on purpose (11), smaller and farther pages (12), is that server safe? (13),
# on a GPU with Triton (14), and the mystery engine (15), an engine with a fault that nobody has told you about.

# %%
surprises(10)

# %%
print("chapter 10: done")
