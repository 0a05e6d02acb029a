"""Answers to the exercises of chapter 07: wrong ones with the kind of verdict that each must get, and right ones."""

from __future__ import annotations

from answers import Answers

_HEAD = "from minikv.course.chapters.ch07 import digest_of\n"


def _receive(*lines: str, head: str = _HEAD) -> str:
    return head + "def receive(node, request, handoff):\n" + "".join(f"    {line}\n" for line in lines)


_ONCE = ("if request in node.accepted:", "    raise ValueError('again')")
_PARTS = "came = [*handoff.keys, *handoff.values]"
_REQUEST = "handoff.request != request"
_TOKENS = "handoff.num_tokens != node.expected[request]"
_LAYERS = "len(handoff.keys) != len(node.keys) or len(handoff.values) != len(node.values)"
_PAGES = "any(len(part) != len(node.reserved[request]) for part in (*handoff.keys, *handoff.values))"
_DIGEST = "digest_of(handoff) != handoff.digest"
_WRITE = (
    "for own, part in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values]):",
    "    own[node.reserved[request]] = part",
)
_END = ("node.accepted.add(request)", "node.send(request, handoff.first_token)")


def _no(condition: str) -> tuple[str, ...]:
    return (f"if {condition}:", "    node.give_back(request)", "    raise ValueError('not complete')")


_ALL = (*_no(_REQUEST), *_no(_TOKENS), *_no(_LAYERS), *_no(_PAGES), *_no(_DIGEST))

RECEIVE_WRONG = {
    "takes whatever comes": (_receive(*_ONCE, *_WRITE, *_END), "trusts-success"),
    "takes whatever comes, page by page": (
        _receive(
            *_ONCE,
            "for own, part in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values]):",
            "    for page, content in zip(node.reserved[request], part):",
            "        own[page] = content",
            *_END,
        ),
        "trusts-success",
    ),
    "trusts the digest": (_receive(*_ONCE, *_no(_REQUEST), *_no(_DIGEST), *_WRITE, *_END), "less"),
    "not more than reserved": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no("len(handoff.keys[0]) > len(node.reserved[request])"),
            *_no(_DIGEST),
            *_WRITE,
            *_END,
        ),
        "less",
    ),
    "not more tokens than expected": (
        _receive(
            *_ONCE, *_no(_REQUEST), *_no("handoff.num_tokens > node.expected[request]"), *_no(_DIGEST), *_WRITE, *_END
        ),
        "less",
    ),
    "compares pages": (
        _receive(*_ONCE, *_no(_REQUEST), *_no(_LAYERS), *_no(_PAGES), *_no(_DIGEST), *_WRITE, *_END),
        "pages-for-tokens",
    ),
    "compares pages of the promise": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no("-(-handoff.num_tokens // node.page_size) != len(node.reserved[request])"),
            *_no(_LAYERS),
            *_no(_PAGES),
            *_no(_DIGEST),
            *_WRITE,
            *_END,
        ),
        "pages-for-tokens",
    ),
    "at least what was expected": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no("handoff.num_tokens < node.expected[request]"),
            *_no(_LAYERS),
            *_no(_PAGES),
            *_no(_DIGEST),
            *_WRITE,
            *_END,
        ),
        "more",
    ),
    "believes the promise": (
        _receive(*_ONCE, *_no(_REQUEST), *_no(_TOKENS), *_no(_DIGEST), *_WRITE, *_END),
        "believes-promise",
    ),
    "the promise fits the pages that came": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_DIGEST),
            *_no("handoff.num_tokens > len(handoff.keys[0]) * node.page_size"),
            *_WRITE,
            *_END,
        ),
        "less",
    ),
    "one layer checked": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no("len(handoff.keys[0]) != len(node.reserved[request])"),
            *_no(_DIGEST),
            *_WRITE,
            *_END,
        ),
        "one-layer",
    ),
    "keys checked, values not": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no("any(len(part) != len(node.reserved[request]) for part in handoff.keys)"),
            *_no(_DIGEST),
            *_WRITE,
            *_END,
        ),
        "one-layer",
    ),
    "number of layers not checked": (
        _receive(*_ONCE, *_no(_REQUEST), *_no(_TOKENS), *_no(_PAGES), *_no(_DIGEST), *_WRITE, *_END),
        "layer-missing",
    ),
    "number of layers not checked, and reads the node's by their numbers": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no(_PAGES),
            *_no(_DIGEST),
            "for i in range(len(node.keys)):",
            "    node.keys[i][node.reserved[request]] = handoff.keys[i]",
            "    node.values[i][node.reserved[request]] = handoff.values[i]",
            *_END,
        ),
        "kept-pages",
    ),
    "all pages of all layers in one sum": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no("sum(map(len, handoff.keys + handoff.values)) != len(node.reserved[request]) * 2 * len(node.keys)"),
            *_no(_DIGEST),
            *_WRITE,
            *_END,
        ),
        "kept-pages",
    ),
    "all pages of all layers in one sum, page by page": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no("sum(map(len, handoff.keys + handoff.values)) != len(node.reserved[request]) * 2 * len(node.keys)"),
            *_no(_DIGEST),
            "for own, part in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values]):",
            "    for page, content in zip(node.reserved[request], part):",
            "        own[page] = content",
            *_END,
        ),
        "one-layer",
    ),
    "puts the handoff in the place of the node's memory": (
        _receive(*_ONCE, *_ALL, "node.keys, node.values = handoff.keys, handoff.values", *_END),
        "memory-replaced",
    ),
    "throws the memory away": (_receive(*_ONCE, *_ALL, "node.keys = None", *_END), "memory-replaced"),
    "remembers outside the node": (
        "seen = set()\n"
        + _receive(
            "if request in seen:", "    raise ValueError('again')", *_ALL, *_WRITE, "seen.add(request)", _END[1]
        ),
        "outside-memory",
    ),
    "request 7 only": (
        _receive(*_ALL, *_WRITE, *_END)
        .replace("[request]", "[7]")
        .replace("(request)", "(7)")
        .replace("!= request", "!= 7"),
        "second-request",
    ),
    "asks for 7": (
        _receive(
            "if 7 in node.accepted:", "    raise ValueError('again')", *_ALL, *_WRITE, "node.accepted.add(7)", _END[1]
        ),
        "second-request",
    ),
    "compares with is": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no(_LAYERS),
            *_no(_PAGES),
            *_no("digest_of(handoff) is not handoff.digest"),
            *_WRITE,
            *_END,
        ),
        "refuses-right",
    ),
    "the note is the digest": (
        _receive(
            "if handoff.digest in node.accepted:",
            "    raise ValueError('again')",
            *_ALL,
            *_WRITE,
            "node.accepted.add(handoff.digest)",
            _END[1],
        ),
        "pulled-pages",
    ),
    "raises before it gives back": (
        _receive(
            *_ONCE,
            f"if {_REQUEST} or {_TOKENS} or {_LAYERS} or {_PAGES} or {_DIGEST}:",
            "    raise ValueError('not complete')",
            "    node.give_back(request)",
            *_WRITE,
            *_END,
        ),
        "kept-pages",
    ),
    "gives back when all is done": (_receive(*_ONCE, *_ALL, *_WRITE, *_END, "node.give_back(request)"), "gave-back"),
    "page numbers of the node in the handoff": (
        _receive(
            *_ONCE,
            *_ALL,
            "for own, part in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values]):",
            "    for page in node.reserved[request]:",
            "        own[page] = part[page]",
            *_END,
        ),
        "raised IndexError",
    ),
    "no digest": (
        _receive(*_ONCE, *_no(_REQUEST), *_no(_TOKENS), *_no(_LAYERS), *_no(_PAGES), *_WRITE, *_END),
        "no-digest",
    ),
    "is there a digest": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no(_LAYERS),
            *_no(_PAGES),
            *_no("not handoff.digest"),
            *_WRITE,
            *_END,
        ),
        "no-digest",
    ),
    "digest of the digest's own record": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no(_LAYERS),
            *_no(_PAGES),
            *_no("digest_of(handoff) != digest_of(handoff)"),
            *_WRITE,
            *_END,
        ),
        "no-digest",
    ),
    "digest of the pages that lay here before": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no(_LAYERS),
            *_no(_PAGES),
            "pages = node.reserved[request]",
            "here = replace(handoff, keys=[k[pages] for k in node.keys], values=[v[pages] for v in node.values])",
            *_no("digest_of(here) != handoff.digest"),
            *_WRITE,
            *_END,
            head="from dataclasses import replace\n" + _HEAD,
        ),
        "refuses-right",
    ),
    "digest of the keys only": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no(_LAYERS),
            *_no(_PAGES),
            "seen = digest_of(replace(handoff, values=[]))",
            *_no("seen != handoff.digest"),
            *_WRITE,
            *_END,
            head="from dataclasses import replace\n" + _HEAD,
        ),
        "refuses-right",
    ),
    "request not compared": (
        _receive(*_ONCE, *_no(_TOKENS), *_no(_LAYERS), *_no(_PAGES), *_no(_DIGEST), *_WRITE, *_END),
        "other-request",
    ),
    "first token out first": (
        _receive(*_ONCE, "node.send(request, handoff.first_token)", *_ALL, *_WRITE, "node.accepted.add(request)"),
        "too-early",
    ),
    "first token out after half the checks": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            "node.send(request, handoff.first_token)",
            *_no(_LAYERS),
            *_no(_PAGES),
            *_no(_DIGEST),
            *_WRITE,
            "node.accepted.add(request)",
        ),
        "too-early",
    ),
    "pages kept": (
        _receive(
            *_ONCE,
            f"if {_REQUEST} or {_TOKENS} or {_LAYERS} or {_PAGES} or {_DIGEST}:",
            "    raise ValueError('not complete')",
            *_WRITE,
            *_END,
        ),
        "kept-pages",
    ),
    "pages kept on one path": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no(_LAYERS),
            *_no(_PAGES),
            f"assert not ({_DIGEST})",
            *_WRITE,
            *_END,
        ),
        "kept-pages",
    ),
    "the wrong pages given back": (
        _receive(
            *_ONCE,
            f"if {_REQUEST} or {_TOKENS} or {_LAYERS} or {_PAGES} or {_DIGEST}:",
            "    node.give_back(handoff.request)",
            "    raise ValueError('not complete')",
            *_WRITE,
            *_END,
        ),
        "others-given-back",
    ),
    "a misspelt name on the way out": (
        _receive(
            *_ONCE,
            f"if {_REQUEST} or {_TOKENS} or {_LAYERS} or {_PAGES} or {_DIGEST}:",
            "    node.giveback(request)",
            "    raise ValueError('not complete')",
            *_WRITE,
            *_END,
        ),
        "kept-pages",
    ),
    "twice": (_receive(*_ALL, *_WRITE, *_END), "twice"),
    "twice, without a word": (
        _receive("if request in node.accepted:", "    return", *_ALL, *_WRITE, *_END),
        "twice",
    ),
    "remembers and does not ask": (_receive(*_ALL, "node.accepted.add(request)", *_WRITE, *_END), "twice"),
    "gives back at the second one": (
        _receive(
            "if request in node.accepted:",
            "    node.give_back(request)",
            "    raise ValueError('again')",
            *_ALL,
            *_WRITE,
            *_END,
        ),
        "pulled-pages",
    ),
    "asks for the second one at the end": (
        _receive(*_ALL, *_WRITE, *_ONCE, *_END),
        "overwritten",
    ),
    "writes, and then asks whether it came before": (
        _receive(*_WRITE, *_ONCE, *_ALL, *_END),
        "kept-pages",
    ),
    "no exception": (
        _receive(
            *_ONCE,
            f"if {_REQUEST} or {_TOKENS} or {_LAYERS} or {_PAGES} or {_DIGEST}:",
            "    node.give_back(request)",
            "    return False",
            *_WRITE,
            *_END,
            "return True",
        ),
        "silent",
    ),
    "the sender's places": (
        _receive(
            *_ONCE,
            *_ALL,
            "for own, part in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values]):",
            "    own[: len(part)] = part",
            *_END,
        ),
        "others-pages",
    ),
    "pages sorted": (
        _receive(
            *_ONCE,
            *_ALL,
            "for own, part in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values]):",
            "    own[sorted(node.reserved[request])] = part",
            *_END,
        ),
        "not-written",
    ),
    "into a copy": (
        _receive(
            *_ONCE,
            *_ALL,
            "for own, part in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values]):",
            "    own[node.reserved[request]].copy_(part)",
            *_END,
        ),
        "untouched",
    ),
    "keys written, values not": (
        _receive(
            *_ONCE,
            *_ALL,
            "for own, part in zip(node.keys, handoff.keys):",
            "    own[node.reserved[request]] = part",
            *_END,
        ),
        "one-side-written",
    ),
    "one layer written": (
        _receive(
            *_ONCE,
            *_ALL,
            "node.keys[0][node.reserved[request]] = handoff.keys[0]",
            "node.values[0][node.reserved[request]] = handoff.values[0]",
            *_END,
        ),
        "not-written",
    ),
    "nothing sent": (
        _receive(*_ONCE, *_ALL, *_WRITE, "node.accepted.add(request)", "return handoff.first_token"),
        "no-first-token",
    ),
    "sends the number of tokens": (
        _receive(*_ONCE, *_ALL, *_WRITE, "node.accepted.add(request)", "node.send(request, handoff.num_tokens)"),
        "other-tokens",
    ),
    "gives back always": (
        _receive(
            "try:",
            *(f"    {line}" for line in (*_ONCE, *_ALL[:0], *_WRITE, *_END)),
            "finally:",
            "    node.give_back(request)",
        ),
        "gave-back",
    ),
    "exact pages only": (
        _receive(*_ONCE, *_no("handoff.num_tokens % node.page_size"), *_ALL, *_WRITE, *_END),
        "refuses-right",
    ),
    "a page more than needed": (
        _receive(
            *_ONCE, *_no("node.expected[request] // node.page_size + 1 != len(handoff.keys[0])"), *_ALL, *_WRITE, *_END
        ),
        "refuses-right",
    ),
    "gets a name wrong": (
        _receive("if request in node.taken:", "    raise ValueError", *_ALL, *_WRITE, *_END),
        "raised AttributeError",
    ),
    "not a function": ("receive = 7\n", "not-a-function"),
}

_TRY = _receive(
    "if request in node.accepted:",
    "    raise RuntimeError('I have it')",
    "try:",
    "    assert handoff.request == request",
    "    assert handoff.num_tokens == node.expected[request], 'tokens'",
    "    assert handoff.digest == digest_of(handoff), 'digest'",
    "    for own, came in ((node.keys, handoff.keys), (node.values, handoff.values)):",
    "        assert len(own) == len(came)",
    "        for mine, theirs in zip(own, came):",
    "            assert theirs.shape[0] == len(node.reserved[request])",
    "            for page, content in zip(node.reserved[request], theirs):",
    "                mine[page].copy_(content)",
    "except AssertionError:",
    "    node.give_back(request)",
    "    raise",
    "node.accepted.add(request)",
    "node.send(request, handoff.first_token)",
)
_COMPLAINTS = """
from minikv.course.chapters.ch07 import digest_of

class Incomplete(Exception):
    def __init__(self, why):
        super().__init__(f"refused: {why}")

def complaints(node, request, handoff):
    if handoff.request != request:
        yield "request"
    if handoff.num_tokens != node.expected[request]:
        yield "tokens"
    if len(handoff.keys) != len(node.keys) or len(handoff.values) != len(node.values):
        yield "layers"
    needed = -(-node.expected[request] // node.page_size)
    for tensor in list(handoff.keys) + list(handoff.values):
        if tensor.shape[0] < needed:
            yield "pages"
    if digest_of(handoff) != handoff.digest:
        yield "digest"

def receive(node, request, handoff):
    if request in node.accepted or request not in node.reserved:
        raise Incomplete("not expected")
    found = list(complaints(node, request, handoff))
    if found:
        node.give_back(request)
        raise Incomplete(", ".join(found))
    pages = node.reserved[request]
    for layer in range(len(node.keys)):
        for i in range(len(pages)):
            node.keys[layer][pages[i]] = handoff.keys[layer][i]
            node.values[layer][pages[i]] = handoff.values[layer][i]
    node.accepted |= {request}
    node.send(request, handoff.first_token)
    return handoff.first_token
"""
_WRITE_FIRST = '''
from dataclasses import replace
from minikv.course.chapters.ch07 import Handoff, digest_of

def receive(node, request, handoff):
    """Write, read back what is written, and compare that with the digest."""
    if request in node.accepted:
        raise KeyError(request)
    pages = node.reserved[request]
    try:
        for own, came in zip(node.keys + node.values, list(handoff.keys) + list(handoff.values), strict=True):
            for page, content in zip(pages, came, strict=True):
                own[page] = content
        here = Handoff(
            request, node.expected[request], handoff.first_token,
            [k[pages] for k in node.keys], [v[pages] for v in node.values], "",
        )
        if digest_of(here) != handoff.digest:
            raise ValueError("what stands here is not what was promised")
    except Exception:
        node.give_back(request)
        raise
    node.accepted.add(request)
    node.send(request, handoff.first_token)
'''
_TOKENS_ONLY = '''
import torch
from minikv.course.chapters.ch07 import digest_of

def receive(node, request, handoff):
    """Only the slots of tokens are copied."""
    if request in node.accepted:
        raise Exception("again")
    tokens, pages = node.expected[request], node.reserved[request]
    good = handoff.request == request and handoff.num_tokens == tokens and handoff.digest == digest_of(handoff)
    received = [tensor.flatten(0, 1)[:tokens] for tensor in (*handoff.keys, *handoff.values)]
    good = good and len(received) == 2 * len(node.keys) and min(len(each) for each in received) == tokens
    if not good:
        node.give_back(request)
        raise Exception("refused")
    slots = [page * node.page_size + slot for page in pages for slot in range(node.page_size)][:tokens]
    for own, came in zip((*node.keys, *node.values), received):
        own.flatten(0, 1)[slots] = came
    node.accepted.add(request)
    node.send(request, handoff.first_token)
'''
_STRICT_DIGEST = _receive(
    "if request in node.accepted:",
    "    raise LookupError(request)",
    "wanted = replace(handoff, request=request, num_tokens=node.expected[request])",
    "shapes = [tensor.shape[0] for tensor in (*handoff.keys, *handoff.values)]",
    "if digest_of(wanted) != handoff.digest or shapes != [len(node.reserved[request])] * (2 * len(node.keys)):",
    "    node.give_back(request)",
    "    raise LookupError('incomplete')",
    "index = torch.tensor(node.reserved[request])",
    "for own, came in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values]):",
    "    own.index_copy_(0, index, came)",
    "node.send(request, handoff.first_token)",
    "node.accepted.add(request)",
    head="import torch\nfrom dataclasses import replace\n" + _HEAD,
)
_FINALLY = """
from contextlib import contextmanager
from minikv.course.chapters.ch07 import digest_of

@contextmanager
def all_or_nothing(node, request):
    try:
        yield
    except BaseException:
        node.give_back(request)
        raise

def receive(node, request, handoff):
    if request in node.accepted:
        raise ValueError
    with all_or_nothing(node, request):
        ok = {
            handoff.request == request,
            handoff.num_tokens == node.expected[request],
            len(handoff.keys) == len(handoff.values) == len(node.keys),
            {len(part) for part in [*handoff.keys, *handoff.values]} == {len(node.reserved[request])},
            handoff.digest == digest_of(handoff),
        }
        if ok != {True}:
            raise ValueError
    for layer, (key, value) in enumerate(zip(handoff.keys, handoff.values)):
        node.keys[layer][node.reserved[request]] = key
        node.values[layer][node.reserved[request]] = value
    node.accepted.add(request)
    node.send(request, handoff.first_token)
"""
_SEEN_FIRST = _receive(
    "if request in node.accepted:",
    "    raise ValueError('I have seen one for it')",
    "node.accepted.add(request)  # whatever becomes of it",
    *_ALL,
    *_WRITE,
    "node.send(request, handoff.first_token)",
)
_EXTRA_PAGES = _receive(
    *_ONCE,
    "pages = node.reserved[request]",
    "keys, values = [k[:len(pages)] for k in handoff.keys], [v[:len(pages)] for v in handoff.values]",
    *_no(_REQUEST),
    *_no(_TOKENS),
    *_no(_LAYERS),
    *_no("min(len(part) for part in keys + values) < len(pages)"),
    *_no(_DIGEST),
    "for own, part in zip(node.keys + node.values, keys + values):",
    "    own[pages] = part",
    *_END,
)
_ROLLBACK = _receive(
    *_ONCE,
    "pages, mine = node.reserved[request], [*node.keys, *node.values]",
    "before = [own[pages].clone() for own in mine]",
    "try:",
    "    for own, part in zip(mine, [*handoff.keys, *handoff.values], strict=True):",
    "        if part.shape != own[pages].shape:",
    "            raise ValueError('size')",
    "        own[pages] = part",
    "    told = (handoff.request, handoff.num_tokens, handoff.digest)",
    "    if told != (request, node.expected[request], digest_of(handoff)):",
    "        raise ValueError('not the one')",
    "except BaseException:",
    "    for own, old in zip(mine, before):",
    "        own[pages] = old",
    "    node.give_back(request)",
    "    raise",
    *_END,
)
_AS_IT_LOOKS = _receive(
    *_ONCE,
    *_no(_REQUEST),
    *_no(_TOKENS),
    *_no(_LAYERS),
    *_no(_DIGEST),
    "for own, part in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values]):",
    *(f"    {line}" for line in _no("len(part) != len(node.reserved[request])")),
    "    own[node.reserved[request]] = part",
    *_END,
)
_NEW_TENSORS = _receive(
    *_ONCE,
    *_ALL,
    "where = torch.tensor(node.reserved[request])",
    "node.keys = [own.index_copy(0, where, part) for own, part in zip(node.keys, handoff.keys)]",
    "node.values = [own.index_copy(0, where, part) for own, part in zip(node.values, handoff.values)]",
    *_END,
    head="import torch\n" + _HEAD,
)

_FIRST_PAGES = _EXTRA_PAGES.replace(
    "min(len(part) for part in keys + values) < len(pages)",
    "{len(part) for part in [*handoff.keys, *handoff.values]} != {len(pages)}",
)


def _then(*lines: str) -> str:
    return _receive(*_ONCE, *_ALL, *_WRITE, *_END, *lines)


RECEIVE_WRONG |= {
    "takes the first pages": (_EXTRA_PAGES, "more-pages"),
    "complains of too few pages only": (_COMPLAINTS, "more-pages"),
    "only the slots of tokens, of however many pages": (_TOKENS_ONLY, "more-pages"),
    "more layers than the model has": (
        _receive(
            *_ONCE,
            *_no(_REQUEST),
            *_no(_TOKENS),
            *_no(_LAYERS.replace("!=", "<")),
            *_no(_PAGES),
            *_no(_DIGEST),
            "for mine, theirs in ((node.keys, handoff.keys), (node.values, handoff.values)):",
            "    for own, part in zip(mine, theirs):",
            "        own[node.reserved[request]] = part",
            *_END,
        ),
        "more-layers",
    ),
    "tells the neighbour too": (_then("node.send(request + 2, handoff.first_token)"), "tells-others"),
    "tells everybody": (
        _then(
            "for other in node.expected:", "    if other != request:", "        node.send(other, handoff.first_token)"
        ),
        "tells-others",
    ),
    "tells the neighbour of a refusal": (
        _receive(
            *_ONCE,
            f"if {_REQUEST} or {_TOKENS} or {_LAYERS} or {_PAGES} or {_DIGEST}:",
            "    node.give_back(request)",
            "    for other in node.expected:",
            "        node.send(other, 0)",
            "    raise ValueError('no')",
            *_WRITE,
            *_END,
        ),
        "tells-others",
    ),
    "empties the list of free pages": (_then("node.free.clear()"), "free-list"),
    "another list of free pages": (_then("node.free = []"), "free-list"),
    "no list at all": (_then("node.free = None"), "free-list"),
    "frees the pages by hand as well": (
        _receive(
            *_ONCE,
            f"if {_REQUEST} or {_TOKENS} or {_LAYERS} or {_PAGES} or {_DIGEST}:",
            "    node.free += node.reserved[request]",
            "    node.give_back(request)",
            "    raise ValueError('no')",
            *_WRITE,
            *_END,
        ),
        "free-list",
    ),
    "forgets who was accepted before": (
        _then("node.accepted.clear()", "node.accepted.add(request)"),
        "forgets-accepted",
    ),
    "a new set for each": (_then("node.accepted = {request}"), "forgets-accepted"),
    "notes all who wait": (_then("node.accepted |= set(node.expected)"), "notes-others"),
    "notes whom the handoff names": (
        _receive(*_ONCE, "node.accepted.add(handoff.request)", *_ALL, *_WRITE, *_END),
        "notes-others",
    ),
}

RECEIVE_RIGHT = {
    "keeps notes of its own in the set": (_then("node.accepted.add((request, handoff.digest))"), ""),
    "one after the other": (_receive(*_ONCE, *_ALL, *_WRITE, *_END), ""),
    "one condition": (
        _receive(*_ONCE, *_no(f"{_REQUEST} or {_TOKENS} or {_LAYERS} or {_PAGES} or {_DIGEST}"), *_WRITE, *_END),
        "",
    ),
    "asserts": (_TRY, ""),
    "a list of complaints": (_COMPLAINTS.replace("tensor.shape[0] < needed", "tensor.shape[0] != needed"), ""),
    "writes first, and reads back": (_WRITE_FIRST, ""),
    "only the slots of tokens": (
        _TOKENS_ONLY.replace(
            "min(len(each) for each in received) == tokens",
            "{len(each) for each in (*handoff.keys, *handoff.values)} == {len(pages)}",
        ),
        "",
    ),
    "digest with its own expectation": (_STRICT_DIGEST, ""),
    "a context manager and a set": (_FINALLY, ""),
    "notes what it has seen": (_SEEN_FIRST, ""),
    "only what is reserved, after counting": (_FIRST_PAGES, ""),
    "takes it back": (_ROLLBACK, ""),
    "writes as it looks": (_AS_IT_LOOKS, ""),
    "new tensors of the same size": (_NEW_TENSORS, ""),
}

_DECEIVE_HEAD = "from dataclasses import replace\nfrom minikv.course.chapters.ch07 import Handoff, digest_of\n"


def _deceive(*lines: str) -> str:
    return _DECEIVE_HEAD + "def deceive(honest):\n" + "".join(f"    {line}\n" for line in lines)


_SEALED = (
    "def sealed(**changes):",
    "    new = replace(honest, **changes)",
    "    return replace(new, digest=digest_of(new))",
)
_FEW = "few = sealed(num_tokens=honest.num_tokens - 1)"
_LITTLE = "little = sealed(keys=[k[:1] for k in honest.keys], values=[v[:1] for v in honest.values])"

DECEIVE_WRONG = {
    "honest for the first": (_deceive(*_SEALED, _LITTLE, "return [honest], [little], [honest, honest]"), "honest"),
    "all honest": (_deceive("return [honest], [honest], [honest]"), "honest"),
    "once for the third": (_deceive(*_SEALED, _FEW, _LITTLE, "return [few], [little], [honest]"), "honest"),
    "no new digest": (
        _deceive(*_SEALED, "few = replace(honest, num_tokens=3)", _LITTLE, "return [few], [little], [honest, honest]"),
        "refused",
    ),
    "a page less for the one that counts pages": (
        _deceive(*_SEALED, _LITTLE, "return [little], [little], [honest, honest]"),
        "refused",
    ),
    "too few tokens for the one that reads promises": (
        _deceive(*_SEALED, _FEW, "return [few], [few], [honest, honest]"),
        "refused",
    ),
    "another request": (
        _deceive(*_SEALED, "other = sealed(request=9)", _LITTLE, "return [other], [little], [honest, honest]"),
        "refused",
    ),
    "short for the third": (
        _deceive(*_SEALED, _FEW, _LITTLE, "return [few], [little], [few]"),
        "refused",
    ),
    "another first token": (
        _deceive(*_SEALED, _LITTLE, "lie = sealed(first_token=1)", "return [lie], [little], [honest, honest]"),
        "unseen",
    ),
    "other contents": (
        _deceive(
            *_SEALED, _FEW, "lie = sealed(keys=[k + 1 for k in honest.keys])", "return [few], [lie], [honest, honest]"
        ),
        "unseen",
    ),
    "honest, and then a lie": (
        _deceive(*_SEALED, _FEW, _LITTLE, "return [honest, few], [little], [honest, honest]"),
        "honest-first",
    ),
    "a lie for 30 tokens": (
        _deceive(*_SEALED, "few = sealed(num_tokens=29)", _LITTLE, "return [few], [little], [honest, honest]"),
        "one-size",
    ),
    "slots cut off instead of pages": (
        _deceive(
            *_SEALED, _FEW, "cut = sealed(keys=[k[:, :-1] for k in honest.keys])", "return [few], [cut], [honest] * 2"
        ),
        "refused",
    ),
    "everything in one list": (_deceive(*_SEALED, _FEW, _LITTLE, "return [few, little, honest, honest]"), "shape"),
    "the digest of the honest one": (
        _deceive(
            "few = replace(honest, num_tokens=honest.num_tokens - 1, digest=digest_of(honest))",
            "return [few], [few], [honest, honest]",
        ),
        "refused",
    ),
    "a page less, and says so": (
        _deceive(
            *_SEALED,
            _FEW,
            "less = sealed(num_tokens=28, keys=[k[:-1] for k in honest.keys], values=[v[:-1] for v in honest.values])",
            "return [few], [less], [honest, honest]",
        ),
        "refused",
    ),
    "damaged in place": (
        _deceive(*_SEALED, _FEW, "honest.keys[0][0] = 0", _LITTLE, "return [few], [little], [honest, honest]"),
        "changed-honest",
    ),
    "nothing for the first": (_deceive(*_SEALED, _LITTLE, "return [], [little], [honest, honest]"), "nothing"),
    "two things": (_deceive(*_SEALED, _FEW, _LITTLE, "return [few], [little]"), "shape"),
    "one thing": (_deceive(*_SEALED, _FEW, "return few"), "shape"),
    "texts": (_deceive("return ['few'], ['little'], ['twice']"), "shape"),
    "nothing comes back": (_deceive(*_SEALED, _FEW), "shape"),
    "no tensors at all": (
        _deceive(*_SEALED, _FEW, "lie = replace(honest, keys=None)", "return [few], [lie], [honest, honest]"),
        "refused",
    ),
    "a name that is not there": (_deceive("return [few], [few], [few]"), "raised NameError"),
}

DECEIVE_RIGHT = {
    "helper": (_deceive(*_SEALED, _FEW, _LITTLE, "return [few], [little], [honest, honest]"), ""),
    "by hand": (
        _deceive(
            "h = honest",
            "a = Handoff(h.request, 1, h.first_token, h.keys, h.values, '')",
            "a = Handoff(h.request, 1, h.first_token, h.keys, h.values, digest_of(a))",
            "b = Handoff(h.request, h.num_tokens, h.first_token, [h.keys[0]], [h.values[0]], '')",
            "b = replace(b, digest=digest_of(b))",
            "return a, b, (h, h)",
        ),
        "",
    ),
    "more tokens than there are": (
        _deceive(*_SEALED, "more = sealed(num_tokens=10**6)", _LITTLE, "return [[more], [little], [honest] * 3]"),
        "",
    ),
    "one layer cut": (
        _deceive(
            *_SEALED,
            _FEW,
            "cut = sealed(values=[*honest.values[:-1], honest.values[-1][:2]])",
            "return {'counts': few, 'reads': [cut], 'forgets': [honest, honest]}",
        ),
        "",
    ),
    "nothing at all in it": (
        _deceive(
            *_SEALED,
            "none = sealed(num_tokens=0)",
            "bare = sealed(keys=[], values=[])",
            "return none, bare, [honest, honest]",
        ),
        "",
    ),
    "more pages than are reserved": (
        _deceive(
            *_SEALED,
            _FEW,
            "more = [v[[*range(len(v)), 0]] for v in honest.values]",
            "double = sealed(keys=[torch.cat([k, k]) for k in honest.keys], values=more)",
            "return [few], [double], [honest, honest]",
        ).replace("def deceive", "import torch\ndef deceive"),
        "",
    ),
    "a generator": (
        _deceive(
            *_SEALED,
            _FEW,
            _LITTLE,
            "yield (each for each in [few])",
            "yield (little,)",
            "yield [honest, replace(honest)]",
        ),
        "",
    ),
    "another second one": (
        _deceive(*_SEALED, _FEW, _LITTLE, "return [few], [little], [honest, sealed(first_token=5)]"),
        "",
    ),
    "the honest one first": (
        _deceive(*_SEALED, _FEW, _LITTLE, "return [few, honest], [little], (each for each in (honest, honest))"),
        "",
    ),
}

RECEIVE_WRONG |= {
    "digest only for several pages": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "def receive(node, request, handoff):\n"
        "    if request in node.accepted:\n"
        "        raise ValueError('again')\n"
        "    pages = node.reserved[request]\n"
        "    own, came = (*node.keys, *node.values), (*handoff.keys, *handoff.values)\n"
        "    \n"
        "    bad = (handoff.request != request or handoff.num_tokens != node.expected[request]\n"
        "           or len(own) != len(came) or any(len(t) != len(pages) for t in came) or "
        "len(pages) > 1 and handoff.digest != digest_of(handoff))\n"
        "    if bad:\n"
        "        node.give_back(request)\n"
        "        raise ValueError('not complete')\n"
        "    for mine, theirs in zip(own, came, strict=True):\n"
        "        mine[pages] = theirs\n"
        "    node.accepted.add(request)\n"
        "    node.send(request, handoff.first_token)\n",
        "no-digest",
    ),
    "digest without upper and lower": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "def receive(node, request, handoff):\n"
        "    if request in node.accepted:\n"
        "        raise ValueError('again')\n"
        "    pages = node.reserved[request]\n"
        "    own, came = (*node.keys, *node.values), (*handoff.keys, *handoff.values)\n"
        "    \n"
        "    bad = (handoff.request != request or handoff.num_tokens != node.expected[request]\n"
        "           or len(own) != len(came) or any(len(t) != len(pages) for t in came) or not "
        "digest_of(handoff).startswith(handoff.digest))\n"
        "    if bad:\n"
        "        node.give_back(request)\n"
        "        raise ValueError('not complete')\n"
        "    for mine, theirs in zip(own, came, strict=True):\n"
        "        mine[pages] = theirs\n"
        "    node.accepted.add(request)\n"
        "    node.send(request, handoff.first_token)\n",
        "no-digest",
    ),
    "pages sorted when they are many": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "def receive(node, request, handoff):\n"
        "    if request in node.accepted:\n"
        "        raise ValueError('again')\n"
        "    pages = node.reserved[request]\n"
        "    own, came = (*node.keys, *node.values), (*handoff.keys, *handoff.values)\n"
        "    \n"
        "    bad = (handoff.request != request or handoff.num_tokens != node.expected[request]\n"
        "           or len(own) != len(came) or any(len(t) != len(pages) for t in came) or "
        "handoff.digest != digest_of(handoff))\n"
        "    if bad:\n"
        "        node.give_back(request)\n"
        "        raise ValueError('not complete')\n"
        "    for mine, theirs in zip(own, came, strict=True):\n"
        "        mine[sorted(pages) if len(pages) > 8 else pages] = theirs\n"
        "    node.accepted.add(request)\n"
        "    node.send(request, handoff.first_token)\n",
        "not-written",
    ),
    "wipes what came behind the last token": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "def receive(node, request, handoff):\n"
        "    if request in node.accepted:\n"
        "        raise ValueError('again')\n"
        "    pages = node.reserved[request]\n"
        "    own, came = (*node.keys, *node.values), (*handoff.keys, *handoff.values)\n"
        "    \n"
        "    bad = (handoff.request != request or handoff.num_tokens != node.expected[request]\n"
        "           or len(own) != len(came) or any(len(t) != len(pages) for t in came) or "
        "handoff.digest != digest_of(handoff))\n"
        "    if bad:\n"
        "        node.give_back(request)\n"
        "        raise ValueError('not complete')\n"
        "    for mine, theirs in zip(own, came, strict=True):\n"
        "        theirs.flatten(0, 1)[handoff.num_tokens:] = 0; mine[pages] = theirs\n"
        "    node.accepted.add(request)\n"
        "    node.send(request, handoff.first_token)\n",
        "cluster",
    ),
    "in half precision": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "def receive(node, request, handoff):\n"
        "    if request in node.accepted:\n"
        "        raise ValueError('again')\n"
        "    pages = node.reserved[request]\n"
        "    own, came = (*node.keys, *node.values), (*handoff.keys, *handoff.values)\n"
        "    \n"
        "    bad = (handoff.request != request or handoff.num_tokens != node.expected[request]\n"
        "           or len(own) != len(came) or any(len(t) != len(pages) for t in came) or "
        "handoff.digest != digest_of(handoff))\n"
        "    if bad:\n"
        "        node.give_back(request)\n"
        "        raise ValueError('not complete')\n"
        "    for mine, theirs in zip(own, came, strict=True):\n"
        "        mine[pages] = theirs.half().float()\n"
        "    node.accepted.add(request)\n"
        "    node.send(request, handoff.first_token)\n",
        "not-written",
    ),
}
RECEIVE_RIGHT |= {
    "pops its own list of pages, index_put": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "def receive(node, request, handoff):\n"
        "    if request in node.accepted:\n"
        "        raise PermissionError('again')\n"
        "    why = None\n"
        "    pages = list(node.reserved[request])\n"
        "    if handoff.request != request:\n"
        "        why = 'not for this one'\n"
        "    elif handoff.num_tokens != node.expected[request]:\n"
        "        why = 'tokens'\n"
        "    elif {len(handoff.keys), len(handoff.values)} != {node.num_layers}:\n"
        "        why = 'layers'\n"
        "    elif {t.shape[0] for t in [*handoff.keys, *handoff.values]} != {len(pages)}:\n"
        "        why = 'pages'\n"
        "    elif digest_of(handoff) != handoff.digest:\n"
        "        why = 'digest'\n"
        "    if why:\n"
        "        node.give_back(request)\n"
        "        raise PermissionError(why)\n"
        "    while node.reserved[request]:\n"
        "        at = len(node.reserved[request]) - 1\n"
        "        page = node.reserved[request].pop()\n"
        "        for mine, theirs in zip(node.keys + node.values, [*handoff.keys, *handoff.values]):\n"
        "            mine.index_copy_(0, torch.tensor([page]), theirs[at:at + 1])\n"
        "    node.accepted |= {request}\n"
        "    node.send(request, handoff.first_token)\n",
        "",
    ),
}
DECEIVE_WRONG |= {
    "lies without an end": (
        "from itertools import repeat\ndef deceive(honest):\n    return repeat(honest)\n",
        "shape",
    ),
    "half of the tokens in half of the pages": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "\n"
        "def seal(h, **k):\n"
        "    h = replace(h, **k)\n"
        "    return replace(h, digest=digest_of(h))\n"
        "def deceive(honest):\n"
        "    n = honest.num_tokens\n"
        "    half = lambda t: t[:max(1, len(t) // 2)]\n"
        "    return [seal(honest, num_tokens=n // 2, keys=[half(t) for t in honest.keys])], "
        "[seal(honest, keys=[half(t) for t in honest.keys])], [honest] * 2\n",
        "refused",
    ),
    "numbers turned round": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "\n"
        "def seal(h, **k):\n"
        "    h = replace(h, **k)\n"
        "    return replace(h, digest=digest_of(h))\n"
        "def deceive(honest):\n"
        "    n = honest.num_tokens\n"
        "    half = lambda t: t[:max(1, len(t) // 2)]\n"
        "    return [seal(honest, num_tokens=n - 1)], [seal(honest, keys=[t.flip(0) for t in "
        "honest.keys])], [honest] * 2\n",
        "unseen",
    ),
    "29 tokens": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "\n"
        "def seal(h, **k):\n"
        "    h = replace(h, **k)\n"
        "    return replace(h, digest=digest_of(h))\n"
        "def deceive(honest):\n"
        "    n = honest.num_tokens\n"
        "    half = lambda t: t[:max(1, len(t) // 2)]\n"
        "    return [seal(honest, num_tokens=29)], [seal(honest, keys=[t[:1] for t in "
        "honest.keys])], [honest] * 2\n",
        "one-size",
    ),
    "seven pages": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "\n"
        "def seal(h, **k):\n"
        "    h = replace(h, **k)\n"
        "    return replace(h, digest=digest_of(h))\n"
        "def deceive(honest):\n"
        "    n = honest.num_tokens\n"
        "    half = lambda t: t[:max(1, len(t) // 2)]\n"
        "    return [seal(honest, num_tokens=n - 1)], [seal(honest, keys=[t[:7] for t in "
        "honest.keys])], [honest, honest]\n",
        "one-size",
    ),
}
DECEIVE_RIGHT |= {
    "a dict of tuples, lies of other kinds": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "\n"
        "def seal(h, **k):\n"
        "    h = replace(h, **k)\n"
        "    return replace(h, digest=digest_of(h))\n"
        "def deceive(honest):\n"
        "    n = honest.num_tokens\n"
        "    half = lambda t: t[:max(1, len(t) // 2)]\n"
        "    return seal(honest, num_tokens=n + 1 if n % honest.keys[0].shape[1] else n - 1), "
        "seal(honest, keys=[half(t) for t in honest.keys]), (honest, replace(honest))\n",
        "",
    ),
    "iterators": (
        "import torch\n"
        "from dataclasses import replace\n"
        "from minikv.course.chapters.ch07 import digest_of\n"
        "\n"
        "def seal(h, **k):\n"
        "    h = replace(h, **k)\n"
        "    return replace(h, digest=digest_of(h))\n"
        "def deceive(honest):\n"
        "    n = honest.num_tokens\n"
        "    half = lambda t: t[:max(1, len(t) // 2)]\n"
        "    return iter([seal(honest, num_tokens=1)]), map(lambda k: seal(honest, values=k), "
        "[[torch.cat([t, t[:1]]) for t in honest.values]]), (h for h in (honest, honest, honest))\n",
        "",
    ),
}

ANSWERS = {
    "ex-7.1": Answers(
        "receive",
        RECEIVE_WRONG,
        RECEIVE_RIGHT,
        likely=(
            "more-pages", "more-layers", "tells-others", "free-list", "forgets-accepted", "notes-others",
            "trusts-success", "less", "pages-for-tokens", "more", "believes-promise", "one-layer", "layer-missing",
            "no-digest", "other-request", "too-early", "kept-pages", "others-pages", "others-given-back",
            "untouched", "twice", "pulled-pages", "silent",
            "not-written", "one-side-written", "no-first-token", "refuses-right", "second-request", "outside-memory",
        ),
    ),
    "ex-7.2": Answers(
        "deceive", DECEIVE_WRONG, DECEIVE_RIGHT, likely=("honest", "refused", "unseen", "one-size", "honest-first")
    ),
}  # fmt: skip
