"""All checks against one kind of server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from minikv.disagg.router import Cluster
from minikv.frontend import Frontend
from minikv.incident.isolation.content import Alone, Truth, look_at, same_alone, unmoved
from minikv.incident.isolation.faults import FAULTS, play, prompts_of
from minikv.incident.isolation.findings import Finding
from minikv.incident.isolation.invariants import Watch
from minikv.incident.isolation.probes import ask_all
from minikv.incident.isolation.targets import Pair, ServerTarget, Target
from minikv.incident.isolation.traffic import NAMES, Limits, Speakers, boundary_asks, limits_of, mixed, turning_over
from minikv.incident.scenarios import SCENARIOS

Make = Callable[..., Frontend]
AGAIN = 3  # of the others, before each request at a boundary


@dataclass(frozen=True)
class Report:
    """What the kit found.

    Attributes:
        found: what did not hold; empty for a server that keeps its tenants apart.
        counts: of what happened, to see that the run was no empty one.
    """

    found: tuple[Finding, ...]
    counts: dict[str, int]

    @property
    def green(self) -> bool:
        """Whether everything held."""
        return not self.found

    def of(self, layer: str) -> tuple[Finding, ...]:
        """What one layer found: "content", "invariant" or "probe"."""
        return tuple(finding for finding in self.found if finding.layer == layer)

    def rules(self, layer: str) -> list[str]:
        """The rules that did not hold in one layer, each once."""
        return list(dict.fromkeys(finding.rule for finding in self.of(layer)))

    @property
    def text(self) -> str:
        """One line for each rule that did not hold, with its first case."""
        if self.green:
            return "Everybody got their own answer, and every rule held."
        first: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.found:
            first.setdefault((finding.layer, finding.rule), []).append(finding)
        return "\n".join(f"{cases[0]} ({len(cases)} in all)" for cases in first.values())


def check_isolation(
    make: Make, *, seed: int = 0, requests: int = 60, faults: Collection[str] = FAULTS, probes: bool = True
) -> Report:
    """Everything: content from outside, invariants from inside, and each part asked alone.

    Args:
        make: builds a fresh server; it is called with `trace=`. `partial(Cluster, model, prefill=..., decode=...)`
            does; use pools of unequal size, or half of the faults have nothing to show.
        seed: of the tenants and their traffic.
        requests: in the mix, beside those at every boundary.
        faults: of the wire, by name; a server of one node has none.
        probes: whether parts are asked alone, too.
    """
    run = _Kit(make, seed)
    run.boundaries()
    run.mix(requests)
    for name in faults if run.is_cluster else ():
        run.fault(name)
    found = run.found + (ask_all(make) if probes else [])
    return Report(tuple(dict.fromkeys(found)), dict(run.counts))


def check_mix(make: Make, requests: int, seed: int = 0) -> Report:
    """A seeded mix of all tenants at once, watched, and nothing else: many requests in little time.

    Args:
        make, seed: as for `check_isolation`.
        requests: how many.
    """
    run = _Kit(make, seed)
    run.mix(requests)
    return Report(tuple(dict.fromkeys(run.found)), dict(run.counts))


def check_content(
    make: Callable[[], Target],
    limits: Limits,
    speakers: Callable[[Collection[str]], Speakers],
    truth: Truth | None = None,
    *,
    tenant: str = NAMES[0],
) -> list[Finding]:
    """The content layer alone, against anything that answers prompts.

    Args:
        make: a fresh target each time, or the same one again.
        limits: what the target says about itself.
        speakers: the tenants, some of them saying something else than they would.
        truth: true answers, where they can be had; else each request is sent once more when nobody else is there.
        tenant: who asks at the boundaries; all others are served in between.
    """
    others = [name for name in NAMES if name != tenant]
    plain = speakers(())
    first = at_boundaries(make(), plain, limits, tenant)
    second = at_boundaries(make(), speakers(others), limits, tenant)
    found = look_at(first, plain.tenants, truth) + unmoved(first, second, others)
    if truth is None:
        quiet = make()
        found += same_alone(first, [(ask, quiet.serve([ask])[0]) for ask, _ in first])
    return found


def at_boundaries(target: Target, speakers: Speakers, limits: Limits, tenant: str) -> list[Pair]:
    """Requests of every boundary length, in pools full of others' words; before each, some of the others come again."""
    others = [name for name in NAMES if name != tenant]
    rounds = turning_over(speakers, limits, others)
    for each in rounds:
        target.serve(each)
    pairs: list[Pair] = []
    for ask in boundary_asks(speakers, limits, tenant):
        target.serve(
            [again for each in rounds[:AGAIN] for again in each]
        )  # or the pages that are lent next would hold the tenant's own words
        pairs += zip([ask], target.serve([ask]), strict=True)
    return pairs


class _Kit:
    """The runs that make a report."""

    def __init__(self, make: Make, seed: int) -> None:
        self.make = make
        self.seed = seed
        server = make(trace=Watch().trace)
        self.model = server.model
        self.limits = limits_of(server)
        self.is_cluster = isinstance(server, Cluster)
        self.truth = Alone(self.model)
        self.found: list[Finding] = []
        self.counts: Counter[str] = Counter()

    def speakers(self, changed: Collection[str] = ()) -> Speakers:
        return Speakers(self.model.encode, self.seed, changed)

    def watched(self, *, quiet_wire: bool = True) -> tuple[Frontend, Watch]:
        watch = Watch()
        server = self.make(trace=watch.trace)
        watch.attach(server, quiet_wire=quiet_wire)
        return server, watch

    def boundaries(self) -> None:
        """The content layer, with the watch beside it."""
        watches: list[tuple[Frontend, Watch]] = []

        def target() -> ServerTarget:
            watches.append(self.watched())
            return ServerTarget(watches[-1][0])

        self.truth.prepare(boundary_asks(self.speakers(), self.limits, NAMES[0]))
        self.found += check_content(target, self.limits, self.speakers, self.truth)
        for server, watch in watches:
            self._close(server, watch)

    def mix(self, requests: int) -> None:
        """All tenants at once: every kind of request, some read along, some left."""
        speakers = self.speakers()
        server, watch = self.watched()
        target = ServerTarget(server)
        for each in turning_over(speakers, self.limits):
            target.serve(each)
        asks = mixed(speakers, self.limits, requests, self.seed)
        self.truth.prepare(asks)
        pairs = list(zip(asks, target.serve(asks), strict=True))
        self.found += look_at(pairs, speakers.tenants, self.truth)
        self._count(pairs)
        self._close(server, watch)

    def fault(self, name: str) -> None:
        """One fault of the wire, after one past and after another."""
        runs: list[list[Pair]] = []
        others = NAMES[1:]
        for changed in ((), others):
            speakers = self.speakers(changed)
            server, watch = self.watched(quiet_wire=False)
            assert isinstance(server, Cluster)
            target = ServerTarget(server)
            for each in turning_over(speakers, self.limits, others):
                target.serve(each)
            pair, found = play(server, SCENARIOS[name], prompts_of(speakers, self.limits))
            runs.append([pair])
            self.found += found
            self._close(server, watch)
        self.found += look_at(runs[0], self.speakers().tenants, self.truth) + unmoved(runs[0], runs[1], others)

    def _close(self, server: Frontend, watch: Watch) -> None:
        self.found += watch.end(server)
        self.counts.update(watch.counts)

    def _count(self, pairs: Iterable[Pair]) -> None:
        for ask, answer in pairs:
            self.counts["asked"] += 1
            self.counts["read along"] += ask.streamed
            self.counts["left"] += answer.left
            self.counts["answered 200"] += answer.status == 200
