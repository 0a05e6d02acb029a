# %% [markdown]
# # 06 The door: exercises
#
# Read [notebooks/06_the_door.ipynb](../notebooks/06_the_door.ipynb) first; it says when to come here. Each check says
# what your code did. `[ ]` is not attempted yet, `[x]` comes with a hint, and a further one if the same thing happens
# again. `[ok]` keeps your code in `my_minikv/`, and from then on the course runs on it.

# %%
from minikv.course import check
from minikv.course.chapters.ch06 import play_line

# %% [markdown]
# ## Exercise 6.1: the door
#
# Difficulty 3 of 5 · importance 5 of 5 · 18 minutes · about 8 lines
#
# Done when what fits is served, now or later, and what never fits is told so at once. *The idea it tests:* a promise is
# kept by counting what may come.
#
# A door gets two small records and looks at both:
#
# | name | is |
# |---|---|
# | `request.prompt` | the prompt, a list of token ids; it belongs to the caller |
# | `request.max_tokens` | the most tokens of the answer |
# | `server.free` | slots that nobody holds at this moment |
# | `server.pool` | slots that there are |
# | `server.context` | the most positions of one request, prompt and answer together |
#
# Here is one that many a server has started with. It says no when the prompt is longer than the context.


# %%
def first_door(request, server):
    if len(request.prompt) > server.context:
        return "refuse", f"at most {server.context} prompt tokens"
    return "serve"


# %% [markdown]
# Write one that keeps its promises. `"serve"`: whatever this request may write has room now. `"wait"`: it will have
# room when others are through. `"refuse"`: it never will, and you say why.
#
# | prompt tokens | `max_tokens` | free | pool | context | answer |
# |---|---|---|---|---|---|
# | 20 | 4 | 28 | 28 | 512 | serve |
# | 20 | 4 | 8 | 28 | 512 | wait |
# | 27 | 2 | 28 | 28 | 512 | serve |
# | 27 | 3 | 28 | 28 | 512 | refuse |
# | 27 | 2 | 27 | 28 | 512 | wait |
# | 600 | 1 | 28 | 28 | 512 | refuse |
# | 24 | 4 | 28 | 28 | 28 | serve |
# | 24 | 5 | 28 | 28 | 28 | refuse |
#
# Two numbers describe a request. Which? The last two lines tell them apart.


# %% tags=["exercise"]
def admit(request, server):
    """Give "serve", "wait" or "refuse" back; beside a "refuse" stands your reason, as above."""
    # BEGIN SOLUTION ex-6.1: two numbers and three questions, about 8 lines
    tokens = len(request.prompt) + request.max_tokens
    slots = tokens - 1  # the last token is never written
    if tokens > server.context:
        return "refuse", f"{tokens} positions of context are needed, there are {server.context}"
    if slots > server.pool:
        return "refuse", f"{slots} slots are needed, there are {server.pool}"
    return "serve" if slots <= server.free else "wait"
    # END SOLUTION


# %% tags=["check"]
check("ex-6.1", admit)

# %% [markdown] tags=["solution-only"]
# Both refusals come first, since they do not depend on the moment. What is free now only decides between "serve" and
# "wait". `min(server.context - 1, server.pool)` is a fine way to ask both lasting questions at once; two questions give
# two reasons.
#
# The door takes the length of the prompt and leaves the prompt alone. To cut it, to pad it or to put a short stand-in
# in its place would all be quick, and all would be found out by somebody else, later: by whoever measures it next.

# %% [markdown]
# Back to [the lesson](../notebooks/06_the_door.ipynb): your door goes into the engine.

# %% [markdown]
# ## Exercise 6.2: six requests
#
# Difficulty 3 of 5 · importance 4 of 5 · 8 minutes · about 4 lines
#
# Done when four broken doors are found, with at most six requests to each, and the right one is left alone. *The idea
# it tests:* mistakes live at the limits.
#
# Five servers, each with 28 slots, all of them free, and a context of 512. One door is right. You cannot see their
# code. You have heard what the four others say about themselves:
#
# | who | says |
# |---|---|
# | Anna | "Every token needs a slot. I count every token." |
# | Ben | "One more has never hurt anybody." |
# | Cleo | "Short prompts are not the problem. I wave them through." |
# | Dan | "I turn away whatever does not fit. Of a long prompt that fits I read the end, where the question is." |
#
# `send(prompt, max_tokens)` sends a prompt of so many tokens. The reply has `.status` (200 or 400) and
# `.prompt_tokens`, the number of prompt tokens that the server says it has read.


# %% tags=["exercise"]
def is_broken(send):
    """True if the door behind `send` is broken, False if it is right. At most six requests."""
    # BEGIN SOLUTION ex-6.2: well chosen requests, and what must come back, about 4 lines
    for prompt, max_tokens, status in [(27, 2, 200), (27, 3, 400), (14, 16, 400)]:
        reply = send(prompt, max_tokens)
        if (reply.status, reply.prompt_tokens) != (status, prompt):
            return True
    return False
    # END SOLUTION


# %% tags=["check"]
check("ex-6.2", is_broken)

# %% [markdown] tags=["solution-only"]
# (27, 2) fits exactly: it shows doors that turn away too much (Anna), and doors that read too little (Dan), if you look
# at both parts of the reply. (27, 3) is one too many (Ben). (14, 16) is one too many as well, with the weight on the
# other side (Cleo). Since it is also one too many for Ben, (27, 2) and (14, 16) alone will do.

# %% [markdown]
# Back to [the lesson](../notebooks/06_the_door.ipynb): your six requests meet a real engine.

# %% [markdown]
# ## Stretch: a fair line that fills the pool
#
# 240 requests come to a pool of 112 slots. Each needs 10 to 44 slots and holds them for six steps.
# `choose(line, free)` is asked who starts next, until it says `None`: an index into `line`, which is sorted by who came
# first. Each entry has `.slots`, and `.passed`: how many who came later have started before it.
#
# Target: 95 % of the pool in use while somebody waits, nobody passed more than 3 times, and everybody served. In order
# of arrival, as below, a large request at the front keeps slots empty. If everybody may start who fits, the large ones
# wait while the small ones stream past.


# %%
def choose(line, free):
    return 0 if line[0].slots <= free else None


print(play_line(choose))
