"""Chapter 08, seven stale pages: whose words are these?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from minikv.course.declare import Exercise, Option, Question, Verdict, ok, register, wrong

if TYPE_CHECKING:
    from minikv.incident.history import Commit, HistoricalDecodeNode
    from minikv.incident.scales import Scale
    from minikv.incident.stage import Stage
    from minikv.models.adapter import BoundModel
    from minikv.scheduling.request import Completion
    from minikv.trace import Event

# Predictions

THE_WINDOW = Question(
    "p-8.1",
    "Each node refuses a prompt if `length >= min(context - 1, pool - 1) - 5`. The context is 8,192, the prefill "
    "pool holds 448 tokens, the decode pool 4,096. For which lengths does prefill refuse and decode accept?",
    {
        "A": Option(
            "449 to 4,096",
            "These are the sizes of the pools. The rule keeps some room back: one slot, and then five more.",
        ),
        "B": Option(
            "443 to 4,090",
            "These are the limits, one too late. The rule says `>=`, so a prompt as long as the limit is refused "
            "already: 442 by prefill, 4,090 by decode.",
        ),
        "C": Option(
            "442 to 4,089",
            "min(8191, 447) - 5 is 442, and prefill refuses from there on. min(8191, 4095) - 5 is 4,090, and decode "
            "accepts up to one below.",
        ),
        "D": Option(
            "442 to 8,191",
            "Decode has a pool too, and it is smaller than the context. min() takes the smaller of the two.",
        ),
        "E": Option(
            "none: it is the same rule",
            "It is the same rule with another number in it. Each node puts in the size of its own pool.",
        ),
    },
    answer="C",
)

A_FRESH_START = Question(
    "p-8.2",
    "The server has just been started. Nobody was here before. The same request is sent. What comes back?",
    {
        "A": Option(
            "the same words",
            "Then the words would come out of the model or out of the request. Look where they stand: in the pages "
            "that another request filled before.",
        ),
        "B": Option(
            "status 200 and nonsense",
            "Nothing was ever written to these pages, so they hold zeros. The request reads them all the same. A leak "
            "needs a past.",
        ),
        "C": Option(
            "status 400",
            "Nobody refuses because of what a page holds. The doors look at lengths, and the length is the same.",
        ),
        "D": Option(
            "a sensible answer about the weather",
            "The question itself never reaches the decode node. One slot arrives, the one of the placeholder.",
        ),
    },
    answer="B",
)

HOW_MANY_OWN = Question(
    "p-8.3",
    "One page was written. The first step on the decode node reads 491 positions. How many of them did the attacker's "
    "own request write?",
    {
        "A": Option(
            "64",
            "That is a whole page. A page counts as written when one slot of it is. The other 63 hold what lay there.",
        ),
        "B": Option(
            "43",
            "491 minus 7 times 64 is 43. But nobody wrote 43 slots: the first page is mostly foreign, and the last "
            "page is read only in part.",
        ),
        "C": Option("1", "There is one more: the step itself writes the slot of the first answer token, and reads it."),
        "D": Option(
            "2",
            "The placeholder at position 0, and the first token of the answer at position 490. The other 489 were "
            "written by somebody else: 63 in the first page, 6 times 64, and 42 in the last.",
        ),
    },
    answer="D",
)

WITH_A_PENCIL = Question(
    "p-8.4",
    "The article reports a prefill pool of 681,280 tokens. It also reports a request with 8 pages: 1 written, 7 stale. "
    "Pages have 64 slots. Can both belong to one request?",
    {
        "A": Option(
            "yes",
            "Eight pages hold at most 512 tokens. A pool of 681,280 tokens takes such a prompt without trouble, and "
            "nobody refuses anything.",
        ),
        "B": Option(
            "no",
            "The shortest prompt that this pool refuses has 681,274 tokens. It needs 10,645 pages. The drawing with 8 "
            "pages must be a smaller example.",
        ),
        "C": Option(
            "yes: the other pages are lent later, one by one",
            "Decode reserves pages for the whole prompt at once, before the handoff comes.",
        ),
        "D": Option(
            "yes, if decode's pool is small",
            "Then decode refuses such a prompt as well, and nobody sees a leak. Decode's pool has to be the larger.",
        ),
    },
    answer="B",
)


# The lab: two test tenants and the historical cluster, at the sizes of the article scale

TENANTS = {"quennell": 382, "halverson": 403}  # and how many tokens their texts have
PAGE_SIZE, PREFILL_PAGES, DECODE_PAGES = 64, 7, 24
CONTEXT = 8192
ANSWER = 32


@dataclass(frozen=True)
class Attack:
    """What one attack met and did.

    Attributes:
        tokens: length of its prompt.
        completion: what its client got.
        commit: what lay in its pages when decode took the handoff; None if it never came so far.
        foreign: slots that were read though others had written them, by tenant ("nobody": never written).
        stale: for each stale page, the tenants whose slots were read in it; ("nobody",) if it was never written.
        running: tenants that were still running when it was sent.
    """

    tokens: int
    completion: Completion
    commit: Commit | None
    foreign: dict[str, int]
    stale: tuple[tuple[str, ...], ...]
    running: tuple[str, ...]


class Lab:
    """A historical cluster that you may attack, because both of its tenants are yours.

    Its allocator lends the page that has been free longest. An attack asks for as many answer tokens as fit.

    Args:
        model: what answers. Without one, a random model of one layer does the work: the same pages and the same
            doors, in a blink, but no words.
        decode_pages: pages in the decode node's pool.

    Attributes:
        attacks: all attacks so far.
    """

    def __init__(self, model: BoundModel | None = None, *, decode_pages: int = DECODE_PAGES) -> None:
        from minikv.config import NodeConfig
        from minikv.course.chapters.ch03 import Allocator
        from minikv.incident.history import HistoricalCluster

        self.readable = model is not None
        self.model = model or _one_layer()
        self.cluster = HistoricalCluster(
            self.model,
            prefill=NodeConfig(num_pages=PREFILL_PAGES),
            decode=NodeConfig(num_pages=decode_pages),
            page_size=PAGE_SIZE,
            context_length=CONTEXT,
            allocator=Allocator,
        )
        self.names: dict[int, str] = {}
        self.pages_left: Counter[str] = Counter()  # by tenant, the most pages that one of its requests held
        self.attacks: list[Attack] = []
        self._open: list[int] = []

    def send(self, tenant: str, prompt: int, answer: int) -> None:
        """A tenant sends the first `prompt` tokens of its text and asks for `answer` tokens. Nothing runs yet."""
        from minikv import SamplingParams

        if tenant not in TENANTS:
            raise ValueError(f"there is no tenant {tenant!r} here; there are {' and '.join(TENANTS)}")
        if not 1 <= prompt <= TENANTS[tenant]:
            raise ValueError(f"the text of {tenant} has {TENANTS[tenant]} tokens; {prompt} is not a part of it")
        params = SamplingParams(max_tokens=answer, ignore_eos=True)
        number = self.cluster.submit(self._ids(tenant)[:prompt], params, tenant)
        self.names[number] = tenant
        self._open.append(number)

    def run(self) -> None:
        """Serve until everybody who was sent has an answer and has given the pages back."""
        while any(not self.cluster.requests[number].finished for number in self._open):
            self._step()
        self._fetch()

    def attack(self, prompt: int) -> str:
        """Send the attack, `prompt` tokens about the weather, and serve until it is answered. Returns the answer."""
        from minikv import SamplingParams
        from minikv.incident.history import UNREAD, Witness

        pool = self.cluster.decode.pool
        unanswered = [number for number in self._open if not self.cluster.requests[number].finished]
        running = tuple(sorted({self.names[number] for number in unanswered}))
        ids = self._ids("weather")
        fitting = max(1, min(ANSWER, pool.num_slots - prompt + 1))
        params = SamplingParams(max_tokens=fitting, ignore_eos=True)
        number = self.cluster.submit((ids * (prompt // len(ids) + 1))[:prompt], params, "attacker")
        self.names[number] = "attacker"
        while not self.cluster.requests[number].finished:
            self._step()
        completion = self.cluster.result(number)
        commit = self._node.commits.get(number)
        foreign: Counter[str] = Counter()
        stale: list[tuple[str, ...]] = []
        if isinstance(pool.ledger, Witness) and number in pool.ledger.stale_reads and commit:
            writers = pool.ledger.stale_reads[number].reshape(-1, PAGE_SIZE)
            for page in self._pages_of(number):
                found = Counter(self.name(int(writer)) for writer in writers[page] if writer != UNREAD)
                foreign += found
                stale.append(tuple(sorted(name for name in found if name != "nobody")) or ("nobody",))
            stale = stale[commit.pages_written :]
        self.attacks.append(Attack(prompt, completion, commit, dict(foreign), tuple(stale), running))
        return completion.text

    @property
    def _node(self) -> HistoricalDecodeNode:
        return cast("HistoricalDecodeNode", self.cluster.decode)

    def _pages_of(self, number: int) -> tuple[int, ...]:
        from minikv.trace import HandoffDone

        handoffs = [event for event in self.cluster.trace if isinstance(event, HandoffDone)]
        return next(event.pages for event in handoffs if event.request == number)

    def name(self, number: int) -> str:
        """Tenant of a request number; "nobody" for slots that were never written."""
        return self.names.get(number, "nobody")

    def _step(self) -> None:
        self.cluster.step()
        for number, table in self.cluster.decode.pool.tables.items():
            self.pages_left[self.names[number]] = max(self.pages_left[self.names[number]], len(table.pages))

    def _fetch(self) -> None:
        for number in self._open:
            error = self.cluster.result(number).error
            if error is not None:
                raise error
        self._open.clear()

    def _ids(self, name: str) -> tuple[int, ...]:
        from minikv.incident.scales import QUESTION
        from minikv.incident.tenants import tenant

        if self.readable:
            return tuple(self.model.encode(QUESTION if name == "weather" else tenant(name).text))
        return tuple((len(name) + 7 * i) % 251 for i in range(TENANTS.get(name, 21)))


@cache
def _one_layer() -> BoundModel:
    from minikv.incident.scales import one_layer

    return one_layer(CONTEXT)


# 8.1


def plan(lab: Lab) -> None:
    """Halverson's pages, and nobody else's, are what the attack gets."""
    lab.send("halverson", prompt=403, answer=64)
    lab.run()
    for _ in range(2):
        lab.send("quennell", prompt=382, answer=72)
        lab.run()
    lab.attack(490)


_NEXT_PAGE = (
    "Which page is lent next? Look at the allocator of this server.",
    "It lends the page that has been free longest. Freed pages go to the end of the line, and the line is as long as "
    "the pool.",
    "Draw a pool of 3 places in a line, for 3 groups of 8 pages. Move a group to the end each time it is freed. Who "
    "stands first when the attack comes?",
)
_IN_THE_WINDOW = (
    "Between which lengths do the two nodes disagree here?",
    "Each node puts its own pool into the rule. The prefill pool holds 448 tokens, this decode pool 1,536.",
    "Write the two limits on a line. Mark where both serve, where both refuse, and what is between.",
)
_EIGHT_PAGES = (
    "How many pages does a prompt of this length reserve, and how many of them does the handoff fill?",
    "Seven stale pages and one written make eight. Which lengths need exactly eight pages of 64?",
    "How many pages for 448 tokens, for 449, for 512, for 513?",
)


def _judge_plan(thing: Any) -> Verdict:
    lab = Lab()
    thing(lab)
    if not lab.attacks:
        return wrong("no-attack", "the plan ended without an attack.", "Which call sends the attack?")
    if len(lab.attacks) > 1:
        said = f"the plan attacked {len(lab.attacks)} times. The first attack has written over what the next one reads."
        return wrong("two-attacks", said, "Can you work out the length before you send anything?")
    found = lab.attacks[0]
    seen = set(lab.names.values())
    if found.completion.status != 200:
        status = found.completion.status
        said = f"{found.tokens} tokens: both nodes refused, and the client got {status}. Nothing leaked."
        return wrong("both-refused", said, *_IN_THE_WINDOW)
    if found.commit is None or not found.stale:
        said = f"{found.tokens} tokens: served, and correctly. That is an answer, not a leak."
        return wrong("served", said, *_IN_THE_WINDOW)
    if not seen & set(TENANTS):
        said = f"{len(found.stale)} stale pages, and all of them hold zeros. Nobody was here before."
        return wrong("no-past", said, "What did p-8.2 say about a fresh start?", "A leak needs a past. Who makes it?")
    if found.stale == (("halverson",),) * 7:
        if "quennell" not in seen:
            said = "halverson's pages it is, but quennell never came: nobody could be taken for anybody."
            return wrong("no-a", said, "Both tenants are served in this exercise. When may quennell come?")
        also = found.foreign.get("quennell", 0)
        page_0 = f" The {also} of quennell lie in the first page: they came with the handoff, out of a page of prefill."
        return ok(
            f"All seven stale pages are halverson's, and {found.foreign['halverson']} of the slots that were read."
            f"{page_0 if also else ''} Now let the real model speak."
        )
    return _why_not(lab, found)


def _why_not(lab: Lab, found: Attack) -> Verdict:
    """The attack read foreign slots, but not those that were wanted."""
    whose = _counted(Counter(" and ".join(names) for names in found.stale))
    if found.running:
        who = " and ".join(found.running)
        said = f"when the attack came, {who} still ran. Pages of theirs were not free. You got {whose}."
        return wrong(
            "running",
            said,
            "When does a request give its pages back?",
            "Pages come back with the last token of the answer. Somebody has to let the server run until then.",
            "Go through your plan line by line. Which pages are free after each line?",
        )
    if len(found.stale) != 7:
        pages = found.commit.pages_reserved if found.commit else 0
        said = f"{found.tokens} tokens reserve {pages} pages, and {len(found.stale)} of them are stale. Wanted: seven."
        return wrong("not-seven", said, *_EIGHT_PAGES)
    if "halverson" not in lab.names.values():
        return wrong("no-b", f"stale pages: {whose}. Halverson never came.", "Whose secret is wanted?")
    if lab.pages_left["halverson"] < 7:
        left = lab.pages_left["halverson"]
        said = f"halverson never held more than {left} pages, and seven are wanted. Stale pages: {whose}."
        return wrong(
            "too-short",
            said,
            "How many slots does a request fill, with its prompt and its answer?",
            "The last token of an answer is never written. The rest is: prompt plus answer, less one.",
            "Pages of 4, prompt of 6, answer of 3. Which slots are filled, in how many pages?",
        )
    return wrong("order", f"stale pages: {whose}. Seven of halverson are wanted.", *_NEXT_PAGE)


def _counted(names: Counter[str]) -> str:
    ranked = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {'never written' if name == 'nobody' else 'of ' + name}" for name, count in ranked)


# 8.2


def slots_read(events: Iterable[Event], number: int) -> dict[str, int]:
    """Slots read for request `number` in its first step on the decode node, by the tenant that wrote them."""
    from minikv.trace import Admit, Read

    events = list(events)
    names = {event.request: event.tenant for event in events if isinstance(event, Admit)}
    reads = [e for e in events if isinstance(e, Read) and e.node == "decode" and e.owner == number]
    counts: Counter[str] = Counter()
    for read in reads:
        if read.step == reads[0].step:
            for writer, slots in read.writers:
                counts[names.get(writer, "nobody")] += slots
    return dict(counts)


@dataclass(frozen=True)
class _Case:
    events: tuple[Event, ...]
    number: int
    expected: dict[str, int]  # from the ledger, not from the events
    reserved: int  # slots
    stale_pages: int
    every_step: int  # slots read in all steps together

    @property
    def own(self) -> int:
        return self.expected["attacker"]

    @property
    def foreign(self) -> int:
        return sum(self.expected.values()) - self.own


@cache
def _cases() -> tuple[_Case, ...]:
    """Three attacks on a random model: two with a past, one on a fresh server."""
    return (_case(30, past=True), _case(38, past=True), _case(27, past=False))


def _case(length: int, *, past: bool) -> _Case:
    from minikv.incident.history import HistoricalCluster
    from minikv.incident.scales import POCKET
    from minikv.incident.stage import Stage, build
    from minikv.trace import Read

    scale = replace(POCKET, answer_tokens=6)
    stage = Stage(scale, scale.load(), build(scale, scale.load(), HistoricalCluster))
    if past:
        stage.play_past()
    done = stage.attack(length)
    outcome = stage.measure(done)
    events = tuple(stage.cluster.trace)
    reads = [e for e in events if isinstance(e, Read) and e.node == "decode" and e.owner == done.request_id]
    return _Case(
        events,
        done.request_id,
        {**outcome.stale_writers, "attacker": length + 1 - outcome.stale_slots_read},
        outcome.pages_reserved * scale.page_size,
        outcome.pages_stale,
        sum(read.slots for read in reads),
    )


_WHO_WROTE = (
    "Who holds these pages, and who filled them? Which of the two did you ask?",
    "The owner of a page is not the writer of its slots. A Read event carries both.",
    "Take one Read event of the attack and print it. Which of its fields has more than one name in it?",
)
_READ_NOT_RESERVED = (
    "Reserved, written, read: which of the three numbers is this?",
    "Attention stops at the length that it believes. The last page is read only so far.",
    "Page size 4, 3 pages, a length of 10. How many slots are reserved, and how many are read?",
)
_ONE_STEP = (
    "How many steps did you add up?",
    "Every step reads everything again. The exercise asks for the first one.",
    "Print the steps of the Read events of this request. Which of them are the first step?",
)


def _judge_slots(thing: Any) -> Verdict:
    for case in _cases():
        got = thing(list(case.events), case.number)
        if not isinstance(got, dict):
            return wrong("shape", f"you gave back {type(got).__name__}.", "Give a dict: tenant to number of slots.")
        got = {name: slots for name, slots in got.items() if slots}
        if got != case.expected:
            return _why_other(case, got)
    return ok(
        "Slots read, by writer. The ledger of the cluster counts the same, and your program has only seen the trace."
    )


def _why_other(case: _Case, got: dict[Any, Any]) -> Verdict:
    if any(not isinstance(name, str) for name in got):
        return wrong(
            "numbers",
            f"you count for {next(name for name in got if not isinstance(name, str))!r}, which is no tenant.",
            "Who is request 2? One kind of event knows tenant and number together.",
            'Admit events carry both. Slots that were never written have the writer -1: call that "nobody".',
        )
    total = sum(got.values())
    own = got.get("attacker", 0)
    foreign = total - own
    if foreign == 0 and own:
        said = "you found 0 foreign slots: all are the attacker's. Yet strangers' words came out."
        return wrong("owner", said, *_WHO_WROTE)
    size = case.reserved // (case.stale_pages + 1)
    if foreign == case.stale_pages * size:
        said = f"{foreign} foreign slots: that is {case.stale_pages} pages of {size}. It is {case.foreign}."
        return wrong(
            "whole-pages",
            said,
            "What about page 0? And was the last page read to its end?",
            "A page that counts as written has one own slot. A page that is read last is not read whole.",
            "Page size 4, three pages, one slot written, a length of 10. Count the foreign slots page by page.",
        )
    if foreign == case.foreign and own == case.own + 1:
        return wrong(
            "other-node",
            f"the foreign slots are right, but you count {own} own ones. It is {case.own}.",
            "On which nodes was something read for this request?",
            "Prefill read a slot too: the one of the placeholder. The question is about decode.",
        )
    if case.reserved in (total, foreign) or foreign == case.reserved - case.own:
        said = f"you count {total} slots. That many were reserved; {case.own + case.foreign} were read."
        return wrong("reserved", said, *_READ_NOT_RESERVED)
    if total >= case.every_step:
        return wrong("every-step", f"you count {total} slots, far more than any step reads.", *_ONE_STEP)
    if own == 0 and total == case.own + case.foreign:
        said = f"you count {total} slots, all foreign. {case.own} of them the attacker wrote."
        return wrong("one-writer", said, "Can one page have two writers? What is in `writers` then?")
    said = f"you say {dict(sorted(got.items()))}, together {total}. {case.own + case.foreign} slots were read."
    return wrong("other", said, *_READ_NOT_RESERVED)


# 8.3


def old_tokens(read_page: Callable[..., Sequence[int]], pool: Any, pages: Sequence[int], hf: Any) -> list[int]:
    """Token ids that lie in the stale pages of a table, in the order of its positions."""
    return [token for page in pages[1:] for token in read_page(pool, page, hf)]


_IN_ORDER = (
    "In which order does a page table list its pages?",
    "Position 64 stands in the second page of the table, whatever number that page has.",
    "A table says [9, 4, 6]. Pages hold two slots each. In which page is position 3?",
)


def _judge_old(thing: Any) -> Verdict:
    from minikv.course.chapters.ch03 import read_page

    pool, table, model = _stale_pool()
    wanted = [[int(token) for token in read_page(pool, page, model.hf)] for page in table]
    got = thing(read_page, pool, list(table), model.hf)
    try:
        tokens = [int(token) for token in got]
    except (TypeError, ValueError):
        said = f"you gave back {type(got).__name__}, and not one token id after the other."
        return wrong("shape", said, "One list for each page, or one list for all of them?")
    flat = [token for page in wanted for token in page]
    first = len(wanted[0])
    if tokens == flat[first:]:
        return ok("The stale pages, read without the model. The words are in the pages. The model is not the leak.")
    if tokens == flat:
        return wrong(
            "page-0",
            f"you read {len(table)} pages. Into one of them the handoff delivered something.",
            "Which page of the table is not stale?",
            "A page counts as written as soon as one slot of it is. Seven of the eight are stale.",
        )
    in_order = [token for page in sorted(table[1:]) for token in read_page(pool, page, model.hf)]
    if tokens == in_order or sorted(tokens) == sorted(flat[first:]):
        return wrong("order", "you read the right pages in another order than the table's.", *_IN_ORDER)
    places = [[int(t) for t in read_page(pool, i, model.hf)] for i in range(len(table))]
    if tokens in ([t for page in places[1:] for t in page], [t for page in places for t in page]):
        return wrong(
            "place",
            "you read pages 1, 2, 3 and so on. The table lists other pages.",
            "What is the difference between the place of a page in a table and its number?",
            "The table holds page numbers. Its first entry is the page of position 0, whatever its number.",
        )
    return wrong("other", f"you gave back {len(tokens)} tokens; the stale pages hold {len(flat) - first}.", *_IN_ORDER)


@cache
def _stale_pool() -> tuple[Any, tuple[int, ...], BoundModel]:
    """A decode pool after an attack, and the attack's page table, whose pages do not lie in order."""
    from minikv.incident.history import HistoricalCluster
    from minikv.incident.scales import POCKET
    from minikv.incident.stage import Stage, build
    from minikv.trace import HandoffDone

    stage = Stage(POCKET, POCKET.load(), build(POCKET, POCKET.load(), HistoricalCluster, allocator=_Scattered))
    stage.play_past()
    stage.attack()
    handoff = [event for event in stage.cluster.trace if isinstance(event, HandoffDone)][-1]
    return stage.cluster.decode.pool, handoff.pages, stage.model


class _Scattered:
    """Last in, first out, over pages that lie in no order."""

    def __init__(self, num_pages: int) -> None:
        self.stack = [(19 * i + 5) % num_pages for i in range(num_pages)] if num_pages % 19 else list(range(num_pages))

    def allocate(self, n: int) -> list[int]:
        return [self.stack.pop() for _ in range(n)]

    def free(self, pages: Sequence[int]) -> None:
        self.stack.extend(reversed(pages))


# The lesson


def busy_day() -> Scale:
    """The article's sizes, with a past in which every page of the decode pool was lent: any order lends old pages.

    Quennell comes in the morning and again in the evening. In between come halverson and forty short questions.
    """
    from minikv.incident.scales import ARTICLE, Visit
    from minikv.incident.tenants import Tenant, tenant

    record, protocol = tenant("quennell"), tenant("halverson")
    ask = "Repeat this text word for word."
    patient = Visit(record, [{"role": "user", "content": f"{record.text} {ask}"}], 72)
    guest = Visit(Tenant("guest", "Good morning!", ()), "Good morning!", 2)
    visits = [[patient], [Visit(protocol, protocol.text, 48), *[guest] * 40], [patient]]
    return replace(ARTICLE, visits=lambda _model: visits)


def watched_answer(stage: Stage, length: int | None = None) -> tuple[Completion, list[tuple[str, dict[str, float]]]]:
    """Let a request answer and note, for each word, whose slots were read for it.

    Position 0 is left out: models like this one park much of their attention there, whatever it holds.

    Returns:
        The answer, and its words with the shares (0 to 1) of the attention that fell on each tenant's slots. The first
        token was chosen on the prefill node, so nothing was read here for it.
    """
    from minikv.incident.attention import WatchedAttention

    cluster, node = stage.cluster, stage.cluster.decode
    ledger = node.pool.ledger
    if ledger is None:
        raise ValueError("without a ledger nobody knows who wrote a slot")
    watch = WatchedAttention(node.pool.num_slots)
    plain, node.attention = node.attention, watch
    number = cluster.submit(stage.scale.attack(stage.model, length), stage.scale.attack_params, "attacker")
    stage.names[number] = "attacker"
    pieces: list[tuple[str, dict[str, float]]] = []
    try:
        while not cluster.requests[number].finished:
            before = watch.weight.copy()
            table = node.pool.tables.get(number)
            cluster.step()
            table = node.pool.tables.get(number, table)
            shares: dict[str, float] = {}
            if table is not None:
                slots = table.slots(1, table.written)
                for writer, weight in zip(ledger.writer[slots], (watch.weight - before)[slots], strict=True):
                    name = stage.name(int(writer))
                    shares[name] = shares.get(name, 0.0) + float(weight)
            pieces.append((stage.model.decode(cluster.requests[number].output_ids), shares))
    finally:
        node.attention = plain
    return cluster.result(number), _words(pieces)


def _words(pieces: list[tuple[str, dict[str, float]]]) -> list[tuple[str, dict[str, float]]]:
    """From the text after each step, with what that step read, to words with shares."""
    words: list[tuple[str, dict[str, float]]] = []
    text = ""
    for longer, shares in pieces:
        new, text = longer[len(text) :], longer
        for index, part in enumerate(new.split(" ") if new else []):
            if index > 0 or not words:
                words.append(("", {}))
            word, before = words.pop()
            both = {name: before.get(name, 0.0) + shares.get(name, 0.0) for name in {**before, **shares}}
            words.append((word + part, both))
    totals = [(word.strip(), shares, sum(shares.values())) for word, shares in words]
    return [
        (word, {name: share / total for name, share in shares.items()})
        for word, shares, total in totals
        if word and total
    ]


PLAN = Exercise(
    "ex-8.1",
    "Plan the attack",
    minutes=18,
    lines=6,
    done_when="the seven stale pages are halverson's, and quennell was served too",
    idea="What leaks is decided by who wrote the pages that are lent next.",
    judge=_judge_plan,
    seconds=30.0,
)
COUNT = Exercise(
    "ex-8.2",
    "Slots read, by writer",
    minutes=15,
    lines=8,
    done_when="your counts are those of the server's own book, for three attacks",
    idea="Count what was read, by who wrote it.",
    judge=_judge_slots,
    seconds=20.0,
)
OLD_WORDS = Exercise(
    "ex-8.3",
    "Read the stale pages",
    minutes=5,
    lines=1,
    done_when="you have the tokens of the seven stale pages, in order, and the model did nothing",
    idea="The words are in the pages.",
    judge=_judge_old,
)

REFERENCE = {"ex-8.1": plan, "ex-8.2": slots_read, "ex-8.3": old_tokens}

register(THE_WINDOW, A_FRESH_START, HOW_MANY_OWN, WITH_A_PENCIL, PLAN, COUNT, OLD_WORDS)
