# %% [markdown]
# # 05 Prefill, decode, batch: exercises
#
# Read [notebooks/05_prefill_decode_batch.ipynb](../notebooks/05_prefill_decode_batch.ipynb) first; it says when to come
# here. Each check says what your code did. `[ ]` is not attempted yet, `[x]` comes with a hint, and a further one if
# the same thing happens again. `[ok]` keeps your code in `my_minikv/`, and from then on the course runs on it.

# %%
from minikv.course import check, learner_or_reference
from minikv.course.chapters.ch05 import Visit, look_at

# %% [markdown]
# ## Exercise 5.1: a step of whole prompts
#
# Difficulty 2 of 5 · importance 4 of 5 · 18 minutes · about 8 lines
#
# Done when no answer waits for a prompt, nobody overtakes, and no step goes over its budget. *The idea it tests:* who
# answers comes first, and prompts fill what is left.
#
# Before each step the engine calls your function with
#
# | | |
# |---|---|
# | `waiting` | requests that have not started, first come first: nothing of them is written |
# | `running` | requests that have started, oldest first: each misses exactly one token, its newest |
# | `budget` | how many tokens the step computes at most, of all requests together |
#
# A request has three things that you may look at, and that you must not change: `name`, `known`, `written`.
#
# Give back the plan: a list of pairs, such as `[(request, 1), (other, 12)]`. Whoever gets nothing is not in it. Here
# is what it should be in some cases. Find the rule; nobody ever passes somebody who came before.
#
# | budget | running | waiting, with tokens | plan |
# |---|---|---|---|
# | 16 | R1, R2 | R3 with 10 | R1: 1, R2: 1, R3: 10 |
# | 16 | R1, R2 | R3 with 14 | R1: 1, R2: 1, R3: 14 |
# | 16 | R1, R2 | R3 with 15 | R1: 1, R2: 1 |
# | 16 | R1, R2 | R3 with 15, R4 with 2 | R1: 1, R2: 1 |
# | 16 | nobody | R3 with 9, R4 with 4, R5 with 4 | R3: 9, R4: 4 |
# | 2 | R1, R2, R3 | R4 with 1 | R1: 1, R2: 1 |


# %% tags=["exercise"]
def plan_whole(waiting, running, budget):
    """The plan of one step, without chunks: pairs of a request and a number of tokens."""
    plan = []
    # BEGIN SOLUTION ex-5.1: those who run, then whole prompts, about 8 lines
    for request in running[:budget]:
        plan.append((request, 1))
    left = budget - len(plan)
    for request in waiting:
        if request.known > left:
            break
        plan.append((request, request.known))
        left -= request.known
    # END SOLUTION
    return plan


# %% tags=["check"]
check("ex-5.1", plan_whole)

# %% [markdown]
# Is it not clear what the check means? Here you see your plan at work. Change the numbers as you like.

# %%
look_at(plan_whole, [Visit("R1", prompt=3, answer=8), Visit("R2", prompt=11, answer=3, arrives=3)], budget=16)

# %% [markdown] tags=["solution-only"]
# Two loops, since there are two kinds of work. `break` and not `continue`: the first that does not fit ends the plan,
# and nobody behind it gets past. The slice keeps the decodes within the budget, which matters on a machine that is sent
# requests by another one.

# %% [markdown]
# Back to [the lesson](../notebooks/05_prefill_decode_batch.ipynb).

# %% [markdown]
# ## Exercise 5.2: a step with chunks
#
# Difficulty 3 of 5 · importance 5 of 5 · 18 minutes · about 7 lines
#
# Done when a prompt of any length is read, and every step is full as long as somebody misses tokens. *The idea it
# tests:* a prompt is read from where it was left.
#
# Now a prompt may be cut. So among those in `running` there may be one whose prompt is not finished: it has started,
# and misses more than one token. What was said above holds, and besides:
#
# * Tokens that are left go to prompts, in order: who started before who waits, who came first before who came later.
#   Each gets as many as it misses, or as many as are left.
# * Nobody is in the plan with 0 tokens.
#
# So a prompt of 10 tokens alone, with a budget of 4, is read in three steps:
#
# | step | known | written | plan |
# |---|---|---|---|
# | 1 | 10 | 0 | 4 |
# | 2 | 10 | 4 | 4 |
# | 3 | 10 | 8 | 2 |
# | 4 | 11 | 10 | 1 |
#
# Some of your 5.1 may stay. Or you see that it has become simpler.


# %% tags=["exercise"]
def plan_step(waiting, running, budget):
    """The plan of one step: pairs of a request and a number of tokens."""
    # BEGIN SOLUTION ex-5.2: everybody in order, as far as the budget goes, about 7 lines
    plan = []
    for request in running + waiting:
        share = min(request.known - request.written, budget)
        if share > 0:
            plan.append((request, share))
            budget -= share
    return plan
    # END SOLUTION


# %% tags=["check"]
check("ex-5.2", plan_step)

# %% [markdown] tags=["solution-only"]
# One loop, for all three kinds of work. Must those who miss one token not be sorted to the front? They are there
# already. A prompt that is not finished took all that was left of its step, so nobody started after it: it is always
# the last of those who run. (The engine's own scheduler sorts all the same, and so does the reference, since being sure
# is cheap.)

# %% [markdown]
# The same as above, with your new plan. A budget of 4 is not enough for R2's prompt of 11, and now it need not be.

# %%
look_at(plan_step, [Visit("R1", prompt=3, answer=8), Visit("R2", prompt=11, answer=3, arrives=3)], budget=4)

# %% [markdown]
# Back to [the lesson](../notebooks/05_prefill_decode_batch.ipynb): there your plan runs in the engine.

# %% [markdown]
# ## Stretch: few pages
#
# 60 requests come, two in each step. Each announces an answer of 96 tokens. Most end much earlier, but nobody knows
# which. The pool has 40 pages of 16 slots, and the budget is 20 tokens a step.
#
# Your function also gets `free`, the number of free pages, and gives back two things: a plan, and a list of running
# requests that give all their pages back before the step. These wait again, in front, with nothing written. A request
# now also has `pages` (that it holds), `left` (tokens that its answer may still get, as announced), `answered`, and
# `more_pages(tokens)`: pages that it lacks for so many more tokens. Pages are lent for what is in the plan, so the plan
# must not take more than are free. Whoever is not in the plan just waits for a step, with its pages.
#
# Below is a careful plan. It reaches three targets of four. Can you reach all? (*Budget used* looks only at steps in
# which somebody waits, and does not count what is computed again.)

# %%
from minikv.course.chapters.short_pool import PAGE_SIZE, POOL, score

mine = learner_or_reference("ex-5.2")


def plan_pages(waiting, running, budget, free):
    """Careful: starts nobody who might not find room to the end."""

    def to_the_end(request):
        return -(-(request.known + request.left - 1) // PAGE_SIZE)

    promised = sum(to_the_end(request) for request in running)
    may_start = []
    for request in waiting:
        promised += to_the_end(request)
        if promised > POOL:
            break
        may_start.append(request)
    return mine(may_start, running, budget), []


print()
print(score(plan_pages))
