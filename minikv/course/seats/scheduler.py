"""The scheduler's seat: a learner's `plan_step` says who gets how many tokens, and this does the rest."""

from __future__ import annotations

from itertools import islice
from typing import ClassVar

from minikv.course.chapters.counting import PlanStep, Request, ask, nothing_planned
from minikv.errors import ConfigError
from minikv.memory import pages_needed
from minikv.scheduling.request import Request as EngineRequest
from minikv.scheduling.scheduler import Scheduled, Scheduler, never_fits


class SeatedScheduler(Scheduler):
    """Plans with a `plan_step`, and handles pages as the engine's own scheduler does.

    Pages are lent as they are needed. When none is free, the request that joined last gives its pages back, goes to
    the front of the queue and is computed anew; nobody starts in that step. So `plan_step` never sees a page: it sees
    everybody who runs, and those at the head of the queue for whom there is room.
    """

    plan_step: ClassVar[PlanStep]
    careful: ClassVar[bool] = False

    def schedule(self) -> list[Scheduled]:
        """Ask for a plan, check it, and lend the pages for it.

        Raises:
            BrokenRule: if the plan breaks a rule, if it is empty though somebody could run, or if a request can get
                no pages though nobody else holds any.
        """
        can_start = self._can_start()
        running = [_seen(request, self.pool.tables[request.number].written) for request in self.running]
        waiting = [_seen(request, 0) for request in can_start]
        if not running and not waiting:
            return []
        budget = self.config.max_batch_tokens
        wanted = ask(type(self).plan_step, waiting, running, budget)
        if not wanted:
            raise nothing_planned(waiting, running, budget)
        requests = {_name(request): request for request in (*self.running, *can_start)}
        plan: list[Scheduled] = []
        before = self.num_preemptions
        starting: list[Scheduled] = []
        for name, tokens in wanted.items():
            share = Scheduled(requests[name], tokens)
            if share.request.number in self.waiting:
                if share.request in can_start:  # not one that gave way just now
                    starting.append(share)
            elif self._make_room(share, plan):
                plan.append(share)
        for share in starting:
            if self.num_preemptions != before or not self._start(share):
                break
            plan.append(share)
        if not plan and self.num_preemptions != before:  # all whom it named gave way: ask again, of those who are left
            return self.schedule()
        return plan

    def _can_start(self) -> list[EngineRequest]:
        """Those at the head of the queue who find a place in the batch and pages, one after the other."""
        places = max(0, self.config.max_batch_size - len(self.running))
        size, free = self.pool.page_size, self.pool.num_free
        if self.careful:
            free = self.pool.num_pages - sum(self._to_the_end(request) for request in self.running)
        found: list[EngineRequest] = []
        for request in islice(self.waiting.values(), places):
            free -= self._to_the_end(request) if self.careful else pages_needed(request.num_tokens, size)
            if free < 0:
                break
            found.append(request)
        if self.waiting and not found and not self.pool.tables:
            raise never_fits(next(iter(self.waiting.values())))
        return found

    def _to_the_end(self, request: EngineRequest) -> int:
        """Pages that a request may come to hold, if it answers as much as it may."""
        return pages_needed(request.prompt_tokens + request.max_tokens - 1, self.pool.page_size)


def as_scheduler(plan_step: PlanStep, *, careful: bool = False) -> type[SeatedScheduler]:
    """A scheduler for `Engine(model, scheduler=...)` or a `Cluster`, made of a `plan_step`.

    Args:
        plan_step: takes the waiting, the running and the budget; gives pairs (request, tokens). See chapter 05.
        careful: start nobody who might have to give pages back before the end. For an `Engine`: on a decode node
            requests come with their pages, and nobody asks whether they may start.

    Raises:
        ConfigError: if `plan_step` is no function.
    """
    if not callable(plan_step):
        raise ConfigError(f"a plan is made by a function, not by {plan_step!r:.60}")
    return type("Seated", (SeatedScheduler,), {"plan_step": staticmethod(plan_step), "careful": careful})


def _name(request: EngineRequest) -> str:
    return f"R{request.number}"


def _seen(request: EngineRequest, written: int) -> Request:
    return Request(_name(request), request.num_tokens, written, request.number)
