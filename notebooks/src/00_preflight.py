# %% [markdown]
# # 00 Preflight and cold open
#
# **Is everything here, and what are we hunting?**
#
# When you are through, you know that your machine can run the course, and you have seen something that should not
# happen. About 10 minutes. There is no exercise.
#
# **Who can do this course?** You can write a class and index a list. You have seen an array. You need no GPU, no
# account and no internet.

# %% [markdown]
# ## Is everything here?
#
# Each line says one of three things. **OK**: fine. **WARN**: go on, and the line says what you lose. **STOP**: do what
# the line says, then run the cell again. A warning never stops the course.

# %% tags=["nbval-ignore-output"]
import os

from minikv.course import keep_guess, preflight, progress

# The copy in the repository is made without versions and places, since these differ from machine to machine.
ready = preflight(details="MINIKV_CI" not in os.environ)

# %% [markdown]
# ## Something that should not happen
#
# Here is a server that runs a language model. It is a real model with real weights, and it runs on your machine. It
# has had two customers today. We made them up, with everything they say.
#
# Each of them sent a text, got an answer, and left. The server has nothing more to do for either of them.
#
# Then you come. You ask about the weather.
#
# Run the cell. It takes about half a minute.

# %% tags=["answers-prediction"]
from minikv.incident.history import HistoricalCluster
from minikv.incident.replay import Stage, build
from minikv.incident.scales import ARTICLE, QUESTION

with progress() as say:
    say("loading the model")
    model = ARTICLE.load()
    server = Stage(ARTICLE, model, build(ARTICLE, model, HistoricalCluster))
    server.play_past(say)
    say("your question is answered")
    answer = server.attack()

asked = model.decode(server.scale.attack(model))
customers = [visit.tenant for group in server.visits for visit in group]
names = [name for customer in customers for name in customer.canaries]

print("your question:", QUESTION)
print("asked again and again, to make it long:  ", asked.count("snow"), "times")
print("customers before you:                    ", len(customers))
print("secret words of theirs in your question: ", sum(name in asked for name in names))
print("status of the answer:                    ", answer.status)
assert (answer.status, answer.finish_reason) == (200, "length")
assert not any(name in asked for name in names)

# %% [markdown]
# The status is a number that comes with every answer. 200 means that all went well, 400 that the request was turned
# away. A machine that watches this server sees 200, and is content.
#
# Now read what the answer says. Below it is a table: on the left the answer once more, on the right a text that
# somebody else had sent. Where both have three or more words in the same order, they stand in brackets, with the same
# number on both sides.

# %% tags=["answers-prediction", "nbval-ignore-output"]
from minikv.viz.texts import shared_runs, side_by_side


def in_common(text):
    return sum(run.size for run in shared_runs(answer.text.split(), text.split()))


print(" ".join(answer.text.split()))
sent = max((customer.text for customer in customers), key=in_common)
side_by_side("what you were told", answer.text, "what somebody else had sent", sent)

# %% [markdown]
# That is not about the weather. You did not know these people, and you did nothing clever: no trick, no password, no
# forged request. You sent a question that was too long.
#
# In 2026 this happened to real people. An article reports 155 answers of a public service, between 27 August and 9
# September, that were stitched partly from what other customers had written. (*KV Cache Explained: How a Cloudflare Bug
# Leaked Users' Prompts*. The fault itself is on public record, as SGLang issue
# [#30233](https://github.com/sgl-project/sglang/issues/30233).)

# %% [markdown]
# ## Your guess
#
# How can this happen? Write one sentence, between the quotation marks. You know little yet, and that is the point: a
# wrong guess is worth more here than none. It is kept, and chapter 09 opens it again.

# %%
my_guess = keep_guess("...")

# %% [markdown]
# ## How the course works
#
# * `notebooks/` are the lessons. They say when to go to `exercises/`. `solutions/`, in the repository, has the answers.
# * Before each surprise you make a **prediction**. Nobody scores it. At the end of a chapter you get a list of what
#   surprised you.
# * Each exercise has a **check** right below it. It tells you what your code did. When it says `[ok]`, your code is
#   kept in `my_minikv/`, and the server of the later chapters runs on it.
# * Stuck? Take the reference and go on. Nothing is locked.
# * Come back another day: `make lab` again. Open the lesson where you were, click into the cell where you stopped, and
#   choose *Run > Run All Above Selected Cell*. Your predictions and your parts are kept.
# * How far are you? `from minikv.course import status; status()` in any cell shows it.
#
# | no. | chapter | the question | minutes |
# |---|---|---|---|
# | **00** | Preflight and cold open | Is everything here, and what are we hunting? | 10 |
# | 01 | What is a KV cache? | Why may a model keep old keys and values instead of computing them again? | 70 |
# | 02 | The memory bill | When is the notepad bigger than the model, and who notices? | 55 |
# | **03** | Pages | Why lend pages, and what is in a page when you get it? | 80 |
# | 04 | Reading through a page table | How does attention find its tokens, and where must it stop? | 105 |
# | 05 | Prefill, decode, batch | Who runs next when everybody shares the machine? | 90 |
# | 06 | The door | What may a server promise, and what does it say when it cannot? | 50 |
# | 07 | Two machines | How does a cache travel, and how does the receiver know that it is all there? | 75 |
# | **08** | Seven stale pages | Whose words are these? | 75 |
# | 09 | Root cause | Which line was it, and is that the right question? | 90 |
# | **10** | The fix | Which guards would you ship first, and how would you know that they hold? | 100 |
# | 11 to 15 | electives, after the story | | planned |
#
# Three hours and no more? Take the chapters in bold.
#
# Next: [notebooks/01_what_is_a_kv_cache.ipynb](01_what_is_a_kv_cache.ipynb), or
# [notebooks/03_pages.ipynb](03_pages.ipynb) on the short path.

# %%
print("chapter 00: done")
