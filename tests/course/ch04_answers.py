"""Answers to the exercises of chapter 04: wrong ones with the kind of verdict that each must get, and right ones."""

from __future__ import annotations

from answers import Answers


def _mapping(*lines: str) -> str:
    return "import numpy as np\nimport torch\ndef slot_mapping(table, start, stop, page_size):\n" + "".join(
        f"    {line}\n" for line in lines
    )


def _each(slot: str, tokens: str = "range(start, stop)") -> str:
    return _mapping(f"return [{slot} for token in {tokens}]")


_SLOT = "table[token // page_size] * page_size + token % page_size"

MAPPING_WRONG = {
    "starts at the page's first slot": (
        _mapping(
            "slots = []",
            "for i in range(stop - start):",
            "    place, inside = divmod(i, page_size)",
            "    slots.append(table[start // page_size + place] * page_size + inside)",
            "return slots",
        ),
        "page-start",
    ),
    "the place for the page": (
        _each("(token // page_size) * page_size + token % page_size"),
        "index-for-id",
    ),
    "the tokens themselves": (_mapping("return list(range(start, stop))"), "index-for-id"),
    "runs on behind the page": (
        _mapping(
            "if start == stop:",
            "    return []",
            "first = table[start // page_size] * page_size + start % page_size",
            "return list(range(first, first + stop - start))",
        ),
        "runs-on",
    ),
    "turns the page too late": (_each(_SLOT.replace("token //", "max(token - 1, 0) //")), "page-too-early"),
    "turns the page too early": (_each(_SLOT.replace("token //", "(token + 1) //")), "page-too-late"),
    "all from the first token": (_each(_SLOT, "range(stop)"), "from-the-start"),
    "without the last": (_each(_SLOT, "range(start, stop - 1)"), "last-left-out"),
    "stop included": (_each(_SLOT, "range(start, stop + 1)"), "one-more"),
    "place in the page only": (_each("token % page_size"), "inside-only"),
    "page only": (_each("table[token // page_size]"), "page-only"),
    "all slots of its pages": (
        _mapping(
            "last = min(-(-stop // page_size), len(table))",
            "pages = table[start // page_size:last]",
            "return [page * page_size + i for page in pages for i in range(page_size)]",
        ),
        "whole-pages",
    ),
    "page and slot": (_each("(table[token // page_size], token % page_size)"), "pairs"),
    "a true division": (_each("table[token // page_size] * page_size + token / page_size"), "not-whole"),
    "not times the page size": (_each("table[token // page_size] + token % page_size"), "not-times-size"),
    "pages of 4": (_each("table[token // 4] * 4 + token % 4"), "own-page-size"),
    "pages of 16": (_each("table[token // 16] * 16 + token % 16"), "own-page-size"),
    "a dict": (_mapping(f"return {{token: {_SLOT} for token in range(start, stop)}}"), "shape"),
    "takes the table apart": (
        _mapping(
            "slots, token = [], 0",
            "while table:",
            "    page = table.pop(0)",
            "    for inside in range(page_size):",
            "        if start <= token < stop:",
            "            slots.append(page * page_size + inside)",
            "        token += 1",
            "return slots",
        ),
        "spoils-the-table",
    ),
    "one slot": (_mapping("return table[start // page_size] * page_size + start % page_size"), "shape"),
    "nothing": (_mapping("slots = [0]"), "no-return"),
    "a text": (_mapping("return '28 29 30'"), "shape"),
    "sorted": (_mapping(f"return sorted({_SLOT} for token in range(start, stop))"), "other slots"),
    "always past the table": (_each("table[token] * page_size"), "raised IndexError"),
    "shift and mask": (
        _mapping(
            "k = page_size.bit_length() - 1",
            "return [(table[t >> k] << k) | (t & (page_size - 1)) for t in range(start, stop)]",
        ),
        "powers-only",
    ),
    "a mask for the place in the page": (
        _each("table[token // page_size] * page_size + (token & (page_size - 1))"),
        "powers-only",
    ),
    "the next power of 2": (
        _mapping(
            "k = (page_size - 1).bit_length()",
            "return [(table[t >> k] << k) + t % page_size for t in range(start, stop)]",
        ),
        "powers-only",
    ),
    "a generator without an end": (_mapping("while True:", "    yield 1"), "endless"),
    "goes on behind stop": (
        _mapping(
            "from itertools import count",
            "return (table[t // page_size % len(table)] * page_size + t % page_size for t in count(start))",
        ),
        "endless",
    ),
    "a million too many": (_mapping("return range(10**12)"), "count"),
}

MAPPING_RIGHT = {
    "one line": (_each(_SLOT), ""),
    "divmod": (
        _mapping(
            "slots = []",
            "for token in range(start, stop):",
            "    place, inside = divmod(token, page_size)",
            "    slots.append(table[place] * page_size + inside)",
            "return slots",
        ),
        "",
    ),
    "all slots, then a piece": (
        _mapping(
            "everything = [page * page_size + i for page in table for i in range(page_size)]",
            "return everything[start:stop]",
        ),
        "",
    ),
    "numpy": (
        _mapping(
            "tokens = np.arange(start, stop)",
            "return np.asarray(table)[tokens // page_size] * page_size + tokens % page_size",
        ),
        "",
    ),
    "torch": (
        _mapping(
            "slots = torch.tensor(table)[:, None] * page_size + torch.arange(page_size)",
            "return slots.flatten()[start:stop]",
        ),
        "",
    ),
    "page after page": (
        _mapping(
            "slots = []",
            "while start < stop:",
            "    first = table[start // page_size] * page_size + start % page_size",
            "    count = min(stop - start, page_size - start % page_size)",
            "    slots.extend(range(first, first + count))",
            "    start += count",
            "return slots",
        ),
        "",
    ),
    "a generator": (_mapping(f"return ({_SLOT} for token in range(start, stop))"), ""),
    "takes its own copy of the table apart": (
        _mapping(
            "slots, table = [], list(table)",
            "while table:",
            "    page = table.pop(0)",
            "    slots += [page * page_size + inside for inside in range(page_size)]",
            "return slots[start:stop]",
        ),
        "",
    ),
    "a true division, made whole": (_each("table[int(token / page_size)] * page_size + token % page_size"), ""),
    "turns the page when it is full": (
        _mapping(
            "slots, place = [], start // page_size",
            "for token in range(start, stop):",
            "    if token > start and token % page_size == 0:",
            "        place += 1",
            "    slots.append(table[place] * page_size + token % page_size)",
            "return slots",
        ),
        "",
    ),
    "a tuple": (_mapping(f"return tuple({_SLOT} for token in range(start, stop))"), ""),
}

_ARGUMENTS = "(query, keys, values, table, written, scale)"


def _attend(*lines: str, name: str = "attend", helpers: str = "") -> str:
    imports = "import math\nimport numpy as np\nimport torch\nimport torch.nn.functional as F\n"
    return f"{imports}{helpers}\ndef {name}{_ARGUMENTS}:\n" + "".join(f"    {line}\n" for line in lines)


_SLOTS = "slots = [table[t // keys.shape[1]] * keys.shape[1] + t % keys.shape[1] for t in range(written)]"
_GATHER = "k, v = keys.flatten(0, 1)[slots], values.flatten(0, 1)[slots]"
_ALL = "k, v = keys[table].flatten(0, 1), values[table].flatten(0, 1)"
_GROUP = "g = query.shape[0] // keys.shape[2]"
_REPEAT = "k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)"
_SCORES = "s = torch.einsum('hd,shd->hs', query, k) * scale"
_WEIGHTS = "w = torch.softmax(s, dim=1)"
_MIX = "return torch.einsum('hs,shd->hd', w, v)"
_REST = (_GROUP, _REPEAT, _SCORES, _WEIGHTS, _MIX)
_WHOLE = "stop = -(-written // keys.shape[1]) * keys.shape[1]"
_HIDDEN = "hidden = torch.arange(k.shape[0]) >= written"

_LOOP = (
    "rows = []",
    "for h in range(query.shape[0]):",
    "    w = torch.softmax(k[:, h // g] @ query[h] * scale, 0)",
    "    rows.append(w @ v[:, h // g])",
)

GATHER_WRONG = {
    "the whole last page": (
        _attend(_WHOLE, _SLOTS.replace("range(written)", "range(stop)"), _GATHER, *_REST),
        "whole-last-page",
    ),
    "the whole last page, by pages": (
        _attend("pages = table[:(written - 1) // keys.shape[1] + 1]", _ALL.replace("table", "pages"), *_REST),
        "whole-last-page",
    ),
    "all of the table": (_attend(_ALL, *_REST), "reserved"),
    "the length of the table": (
        _attend("n = len(table) * keys.shape[1]", _SLOTS.replace("range(written)", "range(n)"), _GATHER, *_REST),
        "reserved",
    ),
    "one slot more": (
        _attend(
            "n = min(written + 1, len(table) * keys.shape[1])", _SLOTS.replace("(written)", "(n)"), _GATHER, *_REST
        ),
        "one-too-many",
    ),
    "two slots more": (
        _attend(
            "n = min(written + 2, len(table) * keys.shape[1])", _SLOTS.replace("(written)", "(n)"), _GATHER, *_REST
        ),
        "over-read",
    ),
    "scores of -infinity": (
        _attend(_ALL, _GROUP, _REPEAT, _SCORES, _HIDDEN, "s[:, hidden] = -math.inf", _WEIGHTS, _MIX),
        "times-zero",
    ),
    "scores of -1e9": (
        _attend(_ALL, _GROUP, _REPEAT, _SCORES, _HIDDEN, "s = s.masked_fill(hidden, -1e9)", _WEIGHTS, _MIX),
        "times-zero",
    ),
    "weights times 0": (
        _attend(
            _ALL, _GROUP, _REPEAT, _SCORES, _HIDDEN, _WEIGHTS, "w = w * ~hidden", "w = w / w.sum(1, keepdim=True)", _MIX
        ),
        "times-zero",
    ),
    "keys and values times 0, scores of -infinity": (
        _attend(
            _ALL,
            _HIDDEN,
            "keep = (~hidden).float()[:, None, None]",
            "k, v = k * keep, v * keep",
            _GROUP,
            _REPEAT,
            _SCORES,
            "s = s.masked_fill(hidden, -math.inf)",
            _WEIGHTS,
            _MIX,
        ),
        "times-zero",
    ),
    "scores times 0": (
        _attend(_ALL, _GROUP, _REPEAT, _SCORES, _HIDDEN, "s = s * ~hidden", _WEIGHTS, _MIX),
        "zero-score",
    ),
    "NaN made 0": (
        _attend(_ALL, "k, v = torch.nan_to_num(k), torch.nan_to_num(v)", *_REST),
        "reserved",
    ),
    "zeros left in": (
        _attend(
            _ALL,
            _HIDDEN,
            "k, v = (torch.where(hidden[:, None, None], 0.0, x) for x in (k, v))",
            *_REST,
        ),
        "zero-score",
    ),
    "repeat": (
        _attend(_SLOTS, _GATHER, _GROUP, _REPEAT.replace("repeat_interleave(g, 1)", "repeat(1, g, 1)"), *_REST[2:]),
        "repeat",
    ),
    "head modulo": (
        _attend(
            _SLOTS,
            _GATHER,
            "rows = []",
            "for h in range(query.shape[0]):",
            "    kv = h % keys.shape[2]",
            "    w = torch.softmax(k[:, kv] @ query[h] * scale, 0)",
            "    rows.append(w @ v[:, kv])",
            "return torch.stack(rows)",
        ),
        "repeat",
    ),
    "three heads share, whatever the model": (
        _attend(_SLOTS, _GATHER, *(line.replace("h // g", "h // 3") for line in _LOOP), "return rows"),
        "other-heads",
    ),
    "divided by the number of KV heads": (
        _attend(_SLOTS, _GATHER, "g = keys.shape[2]", *_LOOP, "return rows"),
        "other-heads-raise",
    ),
    "always nine heads": (
        _attend(_SLOTS, _GATHER, _GROUP, *(line.replace("query.shape[0]", "9") for line in _LOOP), "return rows"),
        "other-heads-raise",
    ),
    "heads on the axis of the tokens": (
        _attend(_SLOTS, _GATHER, _GROUP, *(line.replace("[:, h // g]", "[h // g]") for line in _LOOP), "return rows"),
        "wrong-axis",
    ),
    "a tensor of a list of rows": (
        _attend(_SLOTS, _GATHER, _GROUP, *_LOOP, "return torch.tensor(rows)"),
        "list-of-tensors",
    ),
    "rows end to end": (_attend(_SLOTS, _GATHER, _GROUP, *_LOOP, "return torch.cat(rows)"), "shape"),
    "the first head only": (
        _attend(_SLOTS, _GATHER, _GROUP, *_LOOP[:-1], "    return w @ v[:, h // g]"),
        "shape",
    ),
    "one KV head each": (
        _attend(_SLOTS, _GATHER, *(line.replace("h // g", "h") for line in _LOOP), "return rows"),
        "raised IndexError",
    ),
    "one KV head for all": (
        _attend(_SLOTS, _GATHER, "w = torch.softmax(query @ k[:, 0].T * scale, 1)", "return w @ v[:, 0]"),
        "one-head",
    ),
    "places for pages": (
        _attend("k, v = keys.flatten(0, 1)[:written], values.flatten(0, 1)[:written]", *_REST),
        "other-pages",
    ),
    "without the token that asks": (
        _attend(
            "written = max(written - 1, 1)",
            _SLOTS,
            _GATHER,
            *_REST,
        ),
        "own-token",
    ),
    "full pages only": (
        _attend(
            "full = max(written // keys.shape[1], 1)",
            "pages = table[:full]",
            "k, v = (x[pages].flatten(0, 1)[:written] for x in (keys, values))",
            *_REST,
        ),
        "full-pages-only",
    ),
    "the first page only": (
        _attend("k, v = keys[table[0]][:written], values[table[0]][:written]", *_REST),
        "missed",
    ),
    "no scale": (_attend(_SLOTS, _GATHER, *(line.replace(" * scale", "") for line in _REST)), "no-scale"),
    "a scale of its own": (
        _attend(_SLOTS, _GATHER, *(line.replace("scale", "query.shape[1] ** -0.5") for line in _REST)),
        "own-scale",
    ),
    "divided by the scale": (
        _attend(_SLOTS, _GATHER, *(line.replace("* scale", "/ scale") for line in _REST)),
        "scale-upside-down",
    ),
    "scaled twice": (
        _attend(_SLOTS, _GATHER, *(line.replace("query, k) *", "query * scale, k) *") for line in _REST)),
        "scale-twice",
    ),
    "softmax over the heads": (
        _attend(_SLOTS, _GATHER, *(line.replace("dim=1", "dim=0") for line in _REST)),
        "over-heads",
    ),
    "no softmax": (
        _attend(_SLOTS, _GATHER, *(line.replace("torch.softmax(s, dim=1)", "s") for line in _REST)),
        "no-softmax",
    ),
    "not divided": (
        _attend(_SLOTS, _GATHER, *(line.replace("torch.softmax(s, dim=1)", "s.exp()") for line in _REST)),
        "undivided",
    ),
    "keys for values": (_attend(_SLOTS, _GATHER.replace("values", "keys"), *_REST), "keys-for-values"),
    "nothing read": (_attend("return torch.zeros(query.shape[0], values.shape[3])"), "nothing-read"),
    "turned around": (_attend(_SLOTS, _GATHER, *_REST[:-1], _MIX.replace("->hd", "->dh")), "shape"),
    "flat": (_attend(_SLOTS, _GATHER, *_REST[:-1], _MIX + ".flatten()"), "shape"),
    "nothing given": (_attend(_SLOTS, _GATHER, *_REST[:-1], _MIX.replace("return", "answer =")), "no-return"),
    "zeros put into the pool": (
        _attend(
            "last = table[(written - 1) // keys.shape[1]]",
            "inside = (written - 1) % keys.shape[1] + 1",
            "values[last, inside:] = 7",
            _SLOTS,
            _GATHER,
            *_REST,
        ),
        "writes",
    ),
    "remembers the first request": (
        _attend(
            "if not seen:",
            "    seen.append(list(table))",
            "if keys.shape[0] == 11:",
            "    table = (seen[-1] + table)[:len(table)]",
            _SLOTS,
            _GATHER,
            *_REST,
            helpers="seen = []",
        ),
        "engine",
    ),
    "not a function": (_attend(*_REST) + "attend = 7\n", "not-a-function"),
}

GATHER_RIGHT = {
    "einsum": (_attend(_SLOTS, _GATHER, *_REST), ""),
    "loop over heads": (_attend(_SLOTS, _GATHER, _GROUP, *_LOOP, "return torch.stack(rows)"), ""),
    "a list of rows": (_attend(_SLOTS, _GATHER, _GROUP, *_LOOP, "return rows"), ""),
    "with slot mapping and one head": (
        _attend(
            "slots = slot_mapping(table, 0, written, keys.shape[1])",
            _GATHER,
            _GROUP,
            "return torch.stack([one_head(q, k[:, h // g], v[:, h // g], scale) for h, q in enumerate(query)])",
            helpers=MAPPING_RIGHT["one line"][0]
            + "def one_head(query, keys, values, scale):\n    return torch.softmax(keys @ query * scale, 0) @ values\n",
        ),
        "",
    ),
    "groups folded": (
        _attend(
            _SLOTS,
            _GATHER,
            "q = query.view(keys.shape[2], -1, query.shape[1])",
            "w = torch.softmax(q @ k.permute(1, 2, 0) * scale, dim=-1)",
            "return (w @ v.transpose(0, 1)).reshape(query.shape[0], -1)",
        ),
        "",
    ),
    "torch's own attention": (
        _attend(
            _SLOTS,
            _GATHER,
            _GROUP,
            _REPEAT,
            "q, k, v = query[:, None], k.transpose(0, 1), v.transpose(0, 1)",
            "return F.scaled_dot_product_attention(q, k, v, scale=scale)[:, 0]",
        ),
        "",
    ),
    "numpy": (
        _attend(
            "slots = np.array(table)[:, None] * keys.shape[1] + np.arange(keys.shape[1])",
            "slots = slots.ravel()[:written]",
            "k, v = (x.numpy().reshape(-1, *x.shape[2:])[slots] for x in (keys, values))",
            _GROUP,
            "s = np.einsum('hd,shd->hs', query.numpy(), np.repeat(k, g, axis=1)) * scale",
            "e = np.exp(s - s.max(axis=1, keepdims=True))",
            "return np.einsum('hs,shd->hd', e / e.sum(axis=1, keepdims=True), np.repeat(v, g, axis=1))",
        ),
        "",
    ),
    "pages put together": (
        _attend(
            "size = keys.shape[1]",
            "parts = [(table[i // size], min(size, written - i)) for i in range(0, written, size)]",
            "k = torch.cat([keys[page, :n] for page, n in parts])",
            "v = torch.cat([values[page, :n] for page, n in parts])",
            *_REST,
        ),
        "",
    ),
    "all gathered, then cut": (_attend(_ALL, "k, v = k[:written], v[:written]", *_REST), ""),
    "hidden with where": (
        _attend(
            _ALL,
            _HIDDEN,
            "k, v = (torch.where(hidden[:, None, None], 0.0, x) for x in (k, v))",
            _GROUP,
            _REPEAT,
            _SCORES,
            "s = s.masked_fill(hidden, -math.inf)",
            _WEIGHTS,
            _MIX,
        ),
        "",
    ),
    "in float64": (
        _attend(_SLOTS, _GATHER, "query, k, v = query.double(), k.double(), v.double()", *_REST),
        "",
    ),
    "slot by slot in plain Python": (
        _attend(
            "size, heads = keys.shape[1], query.shape[0]",
            _GROUP,
            "rows = torch.zeros(heads, values.shape[3])",
            "for h in range(heads):",
            "    scores = []",
            "    for t in range(written):",
            "        page, inside = table[t // size], t % size",
            "        scores.append(math.exp(float(query[h] @ keys[page, inside, h // g]) * scale))",
            "    for t in range(written):",
            "        rows[h] += scores[t] / sum(scores) * values[table[t // size], t % size, h // g]",
            "return rows",
        ),
        "",
    ),
    "works on its own copy": (
        _attend(_SLOTS, _GATHER, "k *= scale", *(line.replace(" * scale", "") for line in _REST)),
        "",
    ),
    "changes its list of pages": (
        _attend(
            "size = keys.shape[1]",
            "slots = []",
            "while len(slots) < written:",
            "    page = table.pop(0)",
            "    slots += range(page * size, page * size + size)",
            "slots = slots[:written]",
            _GATHER,
            *_REST,
        ),
        "",
    ),
}

_PAGE = (
    "size, heads = keys.shape[1], query.shape[0]",
    _GROUP,
    "m = torch.full((heads, 1), -math.inf)",
    "total, mixed = torch.zeros(heads, 1), torch.zeros(heads, values.shape[3])",
    "for first in range(0, written, size):",
    "    page, n = table[first // size], min(size, written - first)",
    "    k, v = (x[page, :n].repeat_interleave(g, 1) for x in (keys, values))",
    "    s = torch.einsum('hd,shd->hs', query, k) * scale",
    "    new = torch.maximum(m, s.max(1, keepdim=True).values)",
    "    w, shrink = (s - new).exp(), (m - new).exp()",
    "    total = total * shrink + w.sum(1, keepdim=True)",
    "    mixed = mixed * shrink + torch.einsum('hs,shd->hd', w, v)",
    "    m = new",
    "return mixed / total",
)


def _by_page(*changes: tuple[str, str]) -> str:
    text = _attend(*_PAGE, name="attend_by_page")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def _renamed(answers: dict[str, tuple[str, str]], *titles: str) -> dict[str, tuple[str, str]]:
    return {
        title: (answers[title][0].replace("def attend(", "def attend_by_page("), answers[title][1]) for title in titles
    }


def _pages(*lines: str) -> str:
    """A body that gets `parts`, the pages with their filled slots, and `q`, the query in groups."""
    return _attend(
        "size, kv = keys.shape[1:3]",
        "parts = [(table[i // size], min(size, written - i)) for i in range(0, written, size)]",
        "q = query.view(kv, -1, query.shape[1])",
        *lines,
        name="attend_by_page",
    )


_HEADS = (
    "size = keys.shape[1]",
    _GROUP,
    "rows = []",
    "for h, q in enumerate(query):",
    "    largest, weight, mixed = -math.inf, 0.0, torch.zeros(values.shape[3])",
    "    for place, page in enumerate(table):",
    "        n = min(size, written - place * size)",
    "        if n <= 0:",
    "            break",
    "        scores = keys[page, :n, h // g] @ q * scale",
    "        new = max(largest, scores.max().item())",
    "        shrink = math.exp(largest - new)",
    "        w = torch.exp(scores - new)",
    "        weight = weight * shrink + w.sum()",
    "        mixed = mixed * shrink + w @ values[page, :n, h // g]",
    "        largest = new",
    "    rows.append(mixed / weight)",
    "return torch.stack(rows)",
)


def _by_head(*changes: tuple[str, str]) -> str:
    text = _attend(*_HEADS, name="attend_by_page")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


_KV = "    k, v = keys[page, :n].permute(1, 2, 0), values[page, :n].transpose(0, 1)"

BY_PAGE_WRONG = {
    "mean of the pages": (
        _pages(
            "results = []",
            "for page, n in parts:",
            _KV,
            "    results.append(torch.softmax(q @ k * scale, -1) @ v)",
            "return torch.stack(results).mean(0).flatten(0, 1)",
        ),
        "mean-of-pages",
    ),
    "mean of the pages, by their tokens": (
        _pages(
            "mixed = 0",
            "for page, n in parts:",
            _KV,
            "    mixed = mixed + torch.softmax(q @ k * scale, -1) @ v * n",
            "return (mixed / written).flatten(0, 1)",
        ),
        "mean-by-tokens",
    ),
    "nothing rescaled": (
        _by_page(("shrink = (s - new).exp(), (m - new).exp()", "shrink = (s - new).exp(), (m > -9e9).float()")),
        "not-rescaled",
    ),
    "only the weight rescaled": (_by_page(("mixed * shrink", "mixed")), "half-rescaled"),
    "only the sum rescaled": (_by_page(("total * shrink", "total")), "half-rescaled"),
    "rescaled the wrong way": (
        _by_page(("(m - new).exp()", "torch.where(m > -9e9, (new - m).exp(), 0.0)")),
        "upside-down",
    ),
    "each page from its own largest": (
        _by_page(
            ("torch.maximum(m, s.max(1, keepdim=True).values)", "s.max(1, keepdim=True).values"),
            ("(m - new).exp()", "(m > -9e9).float()"),
        ),
        "not-rescaled",
    ),
    "the last page's largest for all": (
        _by_page(
            ("torch.maximum(m, s.max(1, keepdim=True).values)", "s.max(1, keepdim=True).values"),
            ("mixed * shrink", "mixed * shrink.clamp(max=1)"),
        ),
        "not-rescaled",
    ),
    "measured from the new largest too early": (_by_head(("exp(largest - new)", "exp(new - new)")), "not-rescaled"),
    "only the weight, head by head": (_by_head(("mixed * shrink", "mixed")), "half-rescaled"),
    "grows, beginning with 0": (
        _by_head(("-math.inf", "0.0"), ("exp(largest - new)", "exp(new - largest)")),
        "upside-down",
    ),
    "the largest falls with the page": (
        _by_head(
            ("max(largest, scores.max().item())", "scores.max().item()"),
            ("exp(largest - new)", "exp(min(0.0, largest - new))"),
        ),
        "largest-falls",
    ),
    "always halved": (_by_head(("math.exp(largest - new)", "0.5 if new > largest else 1.0")), "always-half"),
    "powers of 2": (
        _by_head(("math.exp(largest - new)", "2 ** (largest - new)"), ("torch.exp(", "torch.exp2(")),
        "powers-of-2",
    ),
    "divided after each page": (
        _by_head(
            ("        largest = new", "        mixed, largest = mixed / weight, new"), ("mixed / weight)", "mixed)")
        ),
        "divides-each-page",
    ),
    "the heads go on with each other's sums": (
        _by_head(
            ("        largest, weight, mixed = -math", "        pass\n        #"),
            ("    rows = []", "    rows, largest, weight, mixed = [], -math.inf, 0.0, torch.zeros(values.shape[3])"),
        ),
        "heads-go-on",
    ),
    "carried, and not divided": (_by_head(("mixed / weight", "mixed")), "undivided"),
    "the last page alone": (
        _by_head(("weight = weight * shrink + ", "weight = "), ("mixed = mixed * shrink + ", "mixed = ")),
        "missed",
    ),
    "a page not begun, backwards": (
        _by_head(("        if n <= 0:\n                break\n", "        pass\n")),
        "empty-page",
    ),
    "a round too many": (
        _by_head(
            ("for place, page in enumerate(table)", "for place, page in enumerate(table[:written // size + 1])"),
            ("if n <= 0", "if n < 0"),
        ),
        "empty-round",
    ),
    "the length of the table for the last page": (
        _by_head(("min(size, written - place * size)", "size if place < len(table) - 1 else written % size")),
        "over-read",
    ),
    "places for pages, head by head": (
        _by_head(("keys[page,", "keys[place,"), ("values[page,", "values[place,")),
        "other-pages",
    ),
    "three heads share, whatever the model": (_by_head(("h // g", "h // 3")), "other-heads"),
    "no largest at all": (
        _pages(
            "total, mixed = 0, 0",
            "for page, n in parts:",
            _KV,
            "    w = (q @ k * scale).exp()",
            "    total, mixed = total + w.sum(-1, keepdim=True), mixed + w @ v",
            "return (mixed / total).flatten(0, 1)",
        ),
        "overflow",
    ),
    "begins with 0": (_by_page(("torch.full((heads, 1), -math.inf)", "torch.zeros(heads, 1)")), "underflow"),
    "one largest for all heads": (
        _by_page(("s.max(1, keepdim=True).values", "s.max().expand(heads, 1)")),
        "one-maximum",
    ),
    "the whole last page": (_by_page(("min(size, written - first)", "size")), "whole-last-page"),
    "all pages of the table": (
        _by_page(
            ("range(0, written, size)", "range(0, len(table) * size, size)"), ("min(size, written - first)", "size")
        ),
        "reserved",
    ),
    "hidden with weight 0": (
        _by_page(
            ("[page, :n]", "[page]"),
            ("* scale\n    ", "* scale\n    ".replace("    ", "        ") + "s[:, n:] = -math.inf\n    "),
        ),
        "times-zero",
    ),
    "the last page left out": (
        _by_page(("range(0, written, size)", "range(0, max(written // size, 1) * size, size)")),
        "full-pages-only",
    ),
    "without the token that asks": (
        _by_page(("size, heads = ", "written = max(written - 1, 1)\n    size, heads = ")),
        "own-token",
    ),
    "not divided": (
        _pages(
            "mixed = 0",
            "for page, n in parts:",
            _KV,
            "    mixed = mixed + (q @ k * scale).exp() @ v",
            "return mixed.flatten(0, 1)",
        ),
        "undivided",
    ),
    "repeat": (_by_page(("repeat_interleave(g, 1)", "repeat(1, g, 1)")), "repeat"),
    "no scale": (_by_page((" * scale", "")), "no-scale"),
    "places for pages": (_by_page(("table[first // size], min", "first // size, min")), "other-pages"),
    "the answer of 4.2": (GATHER_RIGHT["einsum"][0].replace("def attend(", "def attend_by_page("), "copies"),
    "pages put together": (
        GATHER_RIGHT["pages put together"][0].replace("def attend(", "def attend_by_page("),
        "copies",
    ),
    "gathered with numpy": (GATHER_RIGHT["numpy"][0].replace("def attend(", "def attend_by_page("), "copies"),
    "the pool in float64": (
        _by_page(
            (
                "size, heads = ",
                "query, keys, values = query.double(), keys.double(), values.double()\n    size, heads = ",
            )
        ),
        "copies",
    ),
    "gathers the values only": (
        _pages(
            "scores = torch.cat([q @ keys[page, :n].permute(1, 2, 0) * scale for page, n in parts], -1)",
            "v = torch.cat([values[page, :n] for page, n in parts])",
            "return (torch.softmax(scores, -1) @ v.transpose(0, 1)).flatten(0, 1)",
        ),
        "copies",
    ),
    "28 pages at a time": (
        _pages(
            "m, total, mixed = torch.tensor(-math.inf), 0, 0",
            "for a in range(0, len(parts), 28):",
            "    n = sum(n for page, n in parts[a:a + 28])",
            "    k, v = (x[[page for page, n in parts[a:a + 28]]].flatten(0, 1)[:n].transpose(0, 1) "
            "for x in (keys, values))",
            "    s = q @ k.transpose(1, 2) * scale",
            "    new = torch.maximum(m, s.amax(-1, keepdim=True))",
            "    shrink, w = (m - new).exp(), (s - new).exp()",
            "    total, mixed, m = total * shrink + w.sum(-1, keepdim=True), mixed * shrink + w @ v, new",
            "return (mixed / total).flatten(0, 1)",
        ),
        "copies",
    ),
    "28 pages at a time, keys and values after each other": (
        _pages(
            "m, total, mixed = torch.tensor(-math.inf), 0, 0",
            "for a in range(0, len(parts), 28):",
            "    n = sum(n for page, n in parts[a:a + 28])",
            "    pages = [page for page, n in parts[a:a + 28]]",
            "    s = q @ keys[pages].flatten(0, 1)[:n].permute(1, 2, 0) * scale",
            "    new = torch.maximum(m, s.amax(-1, keepdim=True))",
            "    shrink, w = (m - new).exp(), (s - new).exp()",
            "    total, m = total * shrink + w.sum(-1, keepdim=True), new",
            "    mixed = mixed * shrink + w @ values[pages].flatten(0, 1)[:n].transpose(0, 1)",
            "return (mixed / total).flatten(0, 1)",
        ),
        "copies",
    ),
    "each page cloned, all of them kept": (
        _pages(
            "kept = [(keys[page, :n].clone(), values[page, :n].clone()) for page, n in parts]",
            "scores = [q @ k.permute(1, 2, 0) * scale for k, v in kept]",
            "m = torch.stack([s.amax(-1) for s in scores]).amax(0)[..., None]",
            "w = [(s - m).exp() for s in scores]",
            "mixed = sum(e @ v.transpose(0, 1) for e, (k, v) in zip(w, kept))",
            "return (mixed / sum(e.sum(-1, keepdim=True) for e in w)).flatten(0, 1)",
        ),
        "copies",
    ),
    "each page in numpy, all of them kept": (
        _pages(
            "kept = [(keys[page, :n].numpy().copy(), values[page, :n].numpy().copy()) for page, n in parts]",
            "kept = [(torch.from_numpy(k), torch.from_numpy(v)) for k, v in kept]",
            "w = torch.softmax(torch.cat([q @ k.permute(1, 2, 0) * scale for k, v in kept], -1), -1)",
            "w = w.split([n for page, n in parts], -1)",
            "return sum(e @ v.transpose(0, 1) for e, (k, v) in zip(w, kept)).flatten(0, 1)",
        ),
        "copies",
    ),
    "heads and width turned": (_by_page(("return mixed / total", "return (mixed / total).T")), "shape"),
    "nothing given": (_by_page(("return mixed / total", "mixed = mixed / total")), "no-return"),
    "not a function": (_by_page() + "attend_by_page = attend_by_page.__name__\n", "not-a-function"),
}

BY_PAGE_RIGHT = {
    "in Python's own numbers": (
        _attend(
            "size, width = keys.shape[1], values.shape[3]",
            _GROUP,
            "q, heads = query.tolist(), range(len(query))",
            "m, total, mixed = [-math.inf for _ in heads], [0.0 for _ in heads], [[0.0] * width for _ in heads]",
            "for first in range(0, written, size):",
            "    page, n = table[first // size], min(size, written - first)",
            "    k, v = keys[page, :n].tolist(), values[page, :n].tolist()",
            "    for i in range(n):",
            "        for h in heads:",
            "            s = sum(a * b for a, b in zip(q[h], k[i][h // g])) * scale",
            "            new = max(m[h], s)",
            "            shrink, w = math.exp(m[h] - new), math.exp(s - new)",
            "            total[h] = total[h] * shrink + w",
            "            mixed[h] = [a * shrink + w * b for a, b in zip(mixed[h], v[i][h // g])]",
            "            m[h] = new",
            "return torch.tensor([[a / total[h] for a in mixed[h]] for h in heads])",
            name="attend_by_page",
        ),
        "",
    ),
    "each page cloned, and let go": (
        _by_page(("(x[page, :n].rep", "(x[page, :n].clone().contiguous().rep")),
        "",
    ),
    "two pages at a time": (
        _pages(
            "m, total, mixed = torch.tensor(-math.inf), 0, 0",
            "for a in range(0, len(parts), 2):",
            "    n = sum(n for page, n in parts[a:a + 2])",
            "    k, v = (x[[page for page, n in parts[a:a + 2]]].flatten(0, 1)[:n].transpose(0, 1) "
            "for x in (keys, values))",
            "    s = q @ k.transpose(1, 2) * scale",
            "    new = torch.maximum(m, s.amax(-1, keepdim=True))",
            "    shrink, w = (m - new).exp(), (s - new).exp()",
            "    total, mixed, m = total * shrink + w.sum(-1, keepdim=True), mixed * shrink + w @ v, new",
            "return (mixed / total).flatten(0, 1)",
        ),
        "",
    ),
    "merged at the end, in float64": (
        _pages(
            "logs, results = [], []",
            "for page, n in parts:",
            "    k, v = keys[page, :n].permute(1, 2, 0).double(), values[page, :n].transpose(0, 1).double()",
            "    s = q.double() @ k * scale",
            "    logs.append(torch.logsumexp(s, -1, keepdim=True))",
            "    results.append(torch.softmax(s, -1) @ v)",
            "share = torch.softmax(torch.stack(logs), 0)",
            "return (share * torch.stack(results)).sum(0).flatten(0, 1)",
        ),
        "",
    ),
    "running softmax": (_by_page(), ""),
    "groups folded": (
        _pages(
            "m, total, mixed = torch.tensor(-math.inf), 0, 0",
            "for page, n in parts:",
            _KV,
            "    s = q @ k * scale",
            "    new = torch.maximum(m, s.amax(-1, keepdim=True))",
            "    shrink, w = (m - new).exp(), (s - new).exp()",
            "    total, mixed, m = total * shrink + w.sum(-1, keepdim=True), mixed * shrink + w @ v, new",
            "return (mixed / total).flatten(0, 1)",
        ),
        "",
    ),
    "head by head": (_by_head(), ""),
    "only when the largest rises": (
        _attend(
            "size = keys.shape[1]",
            _GROUP,
            "rows = []",
            "for h, q in enumerate(query):",
            "    largest = None",
            "    for first in range(0, written, size):",
            "        page, n = table[first // size], min(size, written - first)",
            "        scores = keys[page, :n, h // g] @ q * scale",
            "        top = scores.max()",
            "        if largest is None:",
            "            largest, weight, mixed = top, 0.0, 0.0",
            "        if top > largest:",
            "            weight, mixed = weight * torch.exp(largest - top), mixed * torch.exp(largest - top)",
            "            largest = top",
            "        w = torch.exp(scores - largest)",
            "        weight, mixed = weight + w.sum(), mixed + w @ values[page, :n, h // g]",
            "    rows.append(mixed / weight)",
            "return rows",
            name="attend_by_page",
        ),
        "",
    ),
    "twice over the pages": (
        _pages(
            "m = torch.stack([(q @ keys[page, :n].permute(1, 2, 0) * scale).amax(-1) for page, n in parts]).amax(0)",
            "total, mixed = 0, 0",
            "for page, n in parts:",
            _KV,
            "    w = (q @ k * scale - m[..., None]).exp()",
            "    total, mixed = total + w.sum(-1, keepdim=True), mixed + w @ v",
            "return (mixed / total).flatten(0, 1)",
        ),
        "",
    ),
    "merged at the end": (
        _pages(
            "logs, results = [], []",
            "for page, n in parts:",
            _KV,
            "    s = q @ k * scale",
            "    logs.append(torch.logsumexp(s, -1, keepdim=True))",
            "    results.append(torch.softmax(s, -1) @ v)",
            "share = torch.softmax(torch.stack(logs), 0)",
            "return (share * torch.stack(results)).sum(0).flatten(0, 1)",
        ),
        "",
    ),
    "logsumexp, two by two": (
        _pages(
            "log, mixed = None, None",
            "for page, n in parts:",
            _KV,
            "    s = q @ k * scale",
            "    new, result = torch.logsumexp(s, -1, keepdim=True), torch.softmax(s, -1) @ v",
            "    if log is None:",
            "        log, mixed = new, result",
            "        continue",
            "    both = torch.logaddexp(log, new)",
            "    mixed, log = mixed * (log - both).exp() + result * (new - both).exp(), both",
            "return mixed.flatten(0, 1)",
        ),
        "",
    ),
    "all scores first, then page by page": (
        _pages(
            "scores = [q @ keys[page, :n].permute(1, 2, 0) * scale for page, n in parts]",
            "weights = torch.softmax(torch.cat(scores, -1), -1).split([n for page, n in parts], -1)",
            "return sum(w @ values[page, :n].transpose(0, 1) for w, (page, n) in zip(weights, parts)).flatten(0, 1)",
        ),
        "",
    ),
    "from the last page to the first": (_by_page(("range(0, written, size)", "reversed(range(0, written, size))")), ""),
    "one page at a time in float64": (
        _by_page(
            ("for x in (keys, values))", "for x in (keys.double() if False else keys, values))"),
            (
                "    s = torch.einsum('hd,shd->hs', query, k)",
                "    k, v = k.double(), v.double()\n        s = torch.einsum('hd,shd->hs', query.double(), k)",
            ),
        ),
        "",
    ),
    "in numpy": (
        _attend(
            "q, size = query.numpy(), keys.shape[1]",
            _GROUP,
            "m, total, mixed = np.full((len(q), 1), -np.inf), 0, 0",
            "for place in range(-(-written // size)):",
            "    page, n = table[place], min(size, written - place * size)",
            "    k, v = (np.repeat(x[page, :n].numpy(), g, axis=1) for x in (keys, values))",
            "    s = np.einsum('hd,shd->hs', q, k) * scale",
            "    new = np.maximum(m, s.max(axis=1, keepdims=True))",
            "    w, shrink = np.exp(s - new), np.exp(m - new)",
            "    total = total * shrink + w.sum(axis=1, keepdims=True)",
            "    mixed, m = mixed * shrink + np.einsum('hs,shd->hd', w, v), new",
            "return mixed / total",
            name="attend_by_page",
        ),
        "",
    ),
    "slot by slot": (
        _attend(
            "size, heads = keys.shape[1], query.shape[0]",
            _GROUP,
            "m, total, mixed = torch.full((heads, 1), -math.inf), 0, 0",
            "for t in range(written):",
            "    k, v = (x[table[t // size], t % size].repeat_interleave(g, 0) for x in (keys, values))",
            "    s = (query * k).sum(1, keepdim=True) * scale",
            "    new = torch.maximum(m, s)",
            "    total = total * (m - new).exp() + (s - new).exp()",
            "    mixed = mixed * (m - new).exp() + (s - new).exp() * v",
            "    m = new",
            "return mixed / total",
            name="attend_by_page",
        ),
        "",
    ),
    "whole pages, hidden with where": (
        _by_page(
            (
                "    k, v = (x[page, :n]",
                "    off = (torch.arange(size) >= n)[:, None, None]\n        k, v = (torch.where(off, 0.0, x[page])",
            ),
            ("    new = torch.max", "    s[:, n:] = -math.inf\n        new = torch.max"),
        ),
        "",
    ),
}

MAPPING_WRONG |= {
    "int16": (
        "import torch\n"
        "def slot_mapping(table, start, stop, page_size):\n"
        "    t = torch.arange(start, stop)\n"
        "    return (torch.tensor(table, dtype=torch.int16)[t // page_size] * page_size + (t % "
        "page_size).to(torch.int16)).tolist()\n",
        "large-pages",
    ),
    "256 pages at most": (
        "def slot_mapping(table, start, stop, page_size):\n"
        "    return [table[t // page_size] % 256 * page_size + t % page_size for t in range(start, "
        "stop)]\n",
        "large-pages",
    ),
    "takes tables of six at most": (
        "def slot_mapping(table, start, stop, page_size):\n"
        "    return [table[min(t // page_size, 5)] * page_size + t % page_size for t in range(start, "
        "stop)]\n",
        "long-table",
    ),
    "one list, filled anew": (
        "out = []\n"
        "def slot_mapping(table, start, stop, page_size):\n"
        "    out.clear()\n"
        "    out.extend(table[t // page_size] * page_size + t % page_size for t in range(start, "
        "stop))\n"
        "    return out\n",
        "one-list",
    ),
    "cached by first page": (
        "kept = {}\n"
        "def slot_mapping(table, start, stop, page_size):\n"
        "    key = start, stop, page_size, table[0]\n"
        "    if key not in kept:\n"
        "        kept[key] = [table[t // page_size] * page_size + t % page_size for t in "
        "range(start, stop)]\n"
        "    return kept[key]\n",
        "other slots",
    ),
}
MAPPING_RIGHT |= {
    "chained ranges": (
        "from itertools import chain, islice\n"
        "def slot_mapping(table, start, stop, page_size):\n"
        "    pages = (range(page * page_size, (page + 1) * page_size) for page in table)\n"
        "    return islice(chain.from_iterable(pages), start, stop)\n",
        "",
    ),
    "an array of a module, in floats": (
        "import math\n"
        "from array import array\n"
        "def slot_mapping(table, start, stop, page_size):\n"
        "    return array('q', (table[math.floor(t / page_size)] * page_size + int(math.fmod(t, "
        "page_size)) for t in range(start, stop)))\n",
        "",
    ),
    "a deque, filled from behind": (
        "from collections import deque\n"
        "def slot_mapping(table, start, stop, page_size):\n"
        "    slots = deque()\n"
        "    while stop > start:\n"
        "        stop -= 1\n"
        "        slots.appendleft(page_size * table[stop // page_size - len(table)] + stop % "
        "page_size)\n"
        "    return slots\n",
        "",
    ),
}
GATHER_WRONG |= {
    "a thousand billion rows": (
        "def attend(query, keys, values, table, written, scale):\n    return range(10**12)\n",
        "shape",
    ),
    "half precision": (
        "import torch\n"
        "import torch.nn.functional as F\n"
        "import numpy as np\n"
        "def attend(query, keys, values, table, written, scale):\n"
        "    size, kv = keys.shape[1:3]\n"
        "    slots = [table[t // size] * size + t % size for t in range(written)]\n"
        "    k, v = keys.flatten(0, 1)[slots], values.flatten(0, 1)[slots]\n"
        "    g = query.shape[0] // kv\n"
        "    \n"
        "    rows = [torch.softmax((k[:, h // g].half() @ query[h].half()).float() * scale, 0) @ "
        "v[:, h // g] for h in range(query.shape[0])]\n"
        "    return torch.stack(rows)\n",
        "numbers",
    ),
    "softmax without taking off the largest": (
        "import torch\n"
        "import torch.nn.functional as F\n"
        "import numpy as np\n"
        "def attend(query, keys, values, table, written, scale):\n"
        "    size, kv = keys.shape[1:3]\n"
        "    slots = [table[t // size] * size + t % size for t in range(written)]\n"
        "    k, v = keys.flatten(0, 1)[slots], values.flatten(0, 1)[slots]\n"
        "    g = query.shape[0] // kv\n"
        "    \n"
        "    rows = []\n"
        "    for h in range(query.shape[0]):\n"
        "        e = torch.exp(k[:, h // g] @ query[h] * scale)\n"
        "        rows.append(e / e.sum() @ v[:, h // g])\n"
        "    return torch.stack(rows)\n",
        "overflow",
    ),
    "cleans the pool behind its tokens": (
        "import torch\n"
        "import torch.nn.functional as F\n"
        "import numpy as np\n"
        "def attend(query, keys, values, table, written, scale):\n"
        "    size, kv = keys.shape[1:3]\n"
        "    slots = [table[t // size] * size + t % size for t in range(len(table) * size)]\n"
        "    keys.flatten(0, 1)[slots[written:]] = 0\n"
        "    values.flatten(0, 1)[slots[written:]] = 0\n"
        "    k, v = keys.flatten(0, 1)[slots], values.flatten(0, 1)[slots]\n"
        "    g = query.shape[0] // kv\n"
        "    s = torch.einsum('hd,shd->hs', query, k.repeat_interleave(g, 1)) * scale\n"
        "    s[:, written:] = float('-inf')\n"
        "    return torch.einsum('hs,shd->hd', s.softmax(1), v.repeat_interleave(g, 1))\n",
        "engine",
    ),
    "a window of 64 and the first": (
        "import torch\n"
        "import torch.nn.functional as F\n"
        "import numpy as np\n"
        "def attend(query, keys, values, table, written, scale):\n"
        "    size, kv = keys.shape[1:3]\n"
        "    slots = [table[t // size] * size + t % size for t in range(written) if t < 4 or t >= "
        "written - 66]\n"
        "    k, v = keys.flatten(0, 1)[slots], values.flatten(0, 1)[slots]\n"
        "    g = query.shape[0] // kv\n"
        "    return torch.stack([torch.softmax(k[:, h // g] @ query[h] * scale, 0) @ v[:, h // g] "
        "for h in range(query.shape[0])])\n",
        "missed",
    ),
    "pages of 16 at most": (
        "import torch\n"
        "import torch.nn.functional as F\n"
        "import numpy as np\n"
        "def attend(query, keys, values, table, written, scale):\n"
        "    size, kv = keys.shape[1:3]\n"
        "    g = query.shape[0] // kv\n"
        "    k = torch.cat([keys[p, :min(16, written - i * size)] for i, p in enumerate(table) if i "
        "* size < written])\n"
        "    v = torch.cat([values[p, :min(16, written - i * size)] for i, p in enumerate(table) if "
        "i * size < written])\n"
        "    return torch.stack([torch.softmax(k[:, h // g] @ query[h] * scale, 0) @ v[:, h // g] "
        "for h in range(query.shape[0])])\n",
        "missed",
    ),
    "gives back its own buffer": (
        "import torch\n"
        "import torch.nn.functional as F\n"
        "import numpy as np\n"
        "kept = {}\n"
        "def attend(query, keys, values, table, written, scale):\n"
        "    size, kv = keys.shape[1:3]\n"
        "    slots = [table[t // size] * size + t % size for t in range(written)]\n"
        "    k, v = keys.flatten(0, 1)[slots], values.flatten(0, 1)[slots]\n"
        "    g = query.shape[0] // kv\n"
        "    \n"
        "    out = torch.stack([torch.softmax(k[:, h // g] @ query[h] * scale, 0) @ v[:, h // g] for "
        "h in range(query.shape[0])])\n"
        "    if out.shape not in kept:\n"
        "        kept[out.shape] = out\n"
        "    kept[out.shape].copy_(out)\n"
        "    return kept[out.shape]\n",
        "one-buffer",
    ),
}
GATHER_RIGHT |= {
    "a mask over the pool: other order": (
        "import torch\n"
        "import torch.nn.functional as F\n"
        "import numpy as np\n"
        "def attend(query, keys, values, table, written, scale):\n"
        "    mask = torch.zeros(keys.shape[0] * keys.shape[1], dtype=torch.bool)\n"
        "    for t in range(written):\n"
        "        mask[table[t // keys.shape[1]] * keys.shape[1] + t % keys.shape[1]] = True\n"
        "    k, v = keys.flatten(0, 1)[mask], values.flatten(0, 1)[mask]\n"
        "    q = query.unflatten(0, (keys.shape[2], -1))\n"
        "    w = torch.einsum('kgd,skd->kgs', q, k).mul(scale).softmax(-1)\n"
        "    return torch.einsum('kgs,skd->kgd', w, v).flatten(0, 1)\n",
        "",
    ),
    "threads, inference mode, log weights, scales the query in place": (
        "import torch\n"
        "import torch.nn.functional as F\n"
        "import numpy as np\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def attend(query, keys, values, table, written, scale):\n"
        "    size, kv = keys.shape[1:3]\n"
        "    slots = [table[t // size] * size + t % size for t in range(written)]\n"
        "    k, v = keys.flatten(0, 1)[slots], values.flatten(0, 1)[slots]\n"
        "    g = query.shape[0] // kv\n"
        "    \n"
        "    query *= scale\n"
        "    def one(h):\n"
        "        s = k[:, h // g] @ query[h]\n"
        "        return (s - s.logsumexp(0)).exp() @ v[:, h // g]\n"
        "    with torch.inference_mode(), ThreadPoolExecutor(3) as pool:\n"
        "        return tuple(pool.map(one, range(query.shape[0])))\n",
        "",
    ),
}
BY_PAGE_WRONG |= {
    "measured from the first score of all": (
        "import torch, math, functools\n"
        "def attend_by_page(query, keys, values, table, written, scale):\n"
        "    size, kv, width = keys.shape[1:]\n"
        "    q = query.view(kv, -1, width)\n"
        "    base = None\n"
        "    weight = torch.zeros(kv, q.shape[1], 1)\n"
        "    mixed = torch.zeros(kv, q.shape[1], values.shape[-1])\n"
        "    for i in range((written + size - 1) // size):\n"
        "        n = min(size, written - i * size)\n"
        "        k, v = keys[table[i], :n], values[table[i], :n]\n"
        "        s = torch.einsum('kgd,nkd->kgn', q, k) * scale\n"
        "        base = s[..., :1] if base is None else base; e = (s - base).exp(); weight += "
        "e.sum(-1, keepdim=True); mixed += torch.einsum('kgn,nkd->kgd', e, v)\n"
        "    return (mixed / weight).flatten(0, 1)\n",
        "not-rescaled",
    ),
    "measured from the score of the token itself": (
        "import torch, math, functools\n"
        "def attend_by_page(query, keys, values, table, written, scale):\n"
        "    size, kv, width = keys.shape[1:]\n"
        "    q = query.view(kv, -1, width)\n"
        "    last = keys[table[(written - 1) // size], (written - 1) % size]\n"
        "    base = (torch.einsum('kgd,kd->kg', q, last) * scale)[..., None]\n"
        "    weight = torch.zeros(kv, q.shape[1], 1)\n"
        "    mixed = torch.zeros(kv, q.shape[1], values.shape[-1])\n"
        "    for i in range((written + size - 1) // size):\n"
        "        n = min(size, written - i * size)\n"
        "        k, v = keys[table[i], :n], values[table[i], :n]\n"
        "        s = torch.einsum('kgd,nkd->kgn', q, k) * scale\n"
        "        e = (s - base).exp(); weight += e.sum(-1, keepdim=True); mixed += "
        "torch.einsum('kgn,nkd->kgd', e, v)\n"
        "    return (mixed / weight).flatten(0, 1)\n",
        "not-rescaled",
    ),
    "measured from the first page alone": (
        "import torch, math, functools\n"
        "def attend_by_page(query, keys, values, table, written, scale):\n"
        "    size, kv, width = keys.shape[1:]\n"
        "    q = query.view(kv, -1, width)\n"
        "    base = None\n"
        "    weight = torch.zeros(kv, q.shape[1], 1)\n"
        "    mixed = torch.zeros(kv, q.shape[1], values.shape[-1])\n"
        "    for i in range((written + size - 1) // size):\n"
        "        n = min(size, written - i * size)\n"
        "        k, v = keys[table[i], :n], values[table[i], :n]\n"
        "        s = torch.einsum('kgd,nkd->kgn', q, k) * scale\n"
        "        base = s.amax(-1, keepdim=True) if base is None else base; e = (s - base).exp(); "
        "weight += e.sum(-1, keepdim=True); mixed += torch.einsum('kgn,nkd->kgd', e, v)\n"
        "    return (mixed / weight).flatten(0, 1)\n",
        "overflow",
    ),
    "exponents cut at 80": (
        "import torch, math, functools\n"
        "def attend_by_page(query, keys, values, table, written, scale):\n"
        "    size, kv, width = keys.shape[1:]\n"
        "    q = query.view(kv, -1, width)\n"
        "    base = torch.full((kv, q.shape[1], 1), -math.inf)\n"
        "    weight = torch.zeros(kv, q.shape[1], 1)\n"
        "    mixed = torch.zeros(kv, q.shape[1], values.shape[-1])\n"
        "    for i in range((written + size - 1) // size):\n"
        "        n = min(size, written - i * size)\n"
        "        k, v = keys[table[i], :n], values[table[i], :n]\n"
        "        s = torch.einsum('kgd,nkd->kgn', q, k) * scale\n"
        "        base = torch.maximum(base, s.mean(-1, keepdim=True)) if i == 0 else base; e = (s - "
        "base).clamp(max=60).exp(); weight += e.sum(-1, keepdim=True); mixed += "
        "torch.einsum('kgn,nkd->kgd', e, v)\n"
        "    return (mixed / weight).flatten(0, 1)\n",
        "not-rescaled",
    ),
    "twenty pages at most": (
        "import torch, math, functools\n"
        "def attend_by_page(query, keys, values, table, written, scale):\n"
        "    size, kv, width = keys.shape[1:]\n"
        "    q = query.view(kv, -1, width)\n"
        "    top = torch.full((kv, q.shape[1], 1), -math.inf)\n"
        "    weight = torch.zeros(kv, q.shape[1], 1)\n"
        "    mixed = torch.zeros(kv, q.shape[1], values.shape[-1])\n"
        "    for i in range(min(20, (written + size - 1) // size)):\n"
        "        n = min(size, written - i * size)\n"
        "        k, v = keys[table[i], :n], values[table[i], :n]\n"
        "        s = torch.einsum('kgd,nkd->kgn', q, k) * scale\n"
        "        new = torch.maximum(top, s.amax(-1, keepdim=True)); f = (top - new).exp(); weight "
        "*= f; mixed *= f; top = new; e = (s - top).exp(); weight += e.sum(-1, keepdim=True); mixed "
        "+= torch.einsum('kgn,nkd->kgd', e, v)\n"
        "    return (mixed / weight).flatten(0, 1)\n",
        "missed",
    ),
}
BY_PAGE_RIGHT |= {
    "a fold with logaddexp": (
        "import torch, math, functools\n"
        "def attend_by_page(query, keys, values, table, written, scale):\n"
        "    size, kv, width = keys.shape[1:]\n"
        "    q = query.view(kv, -1, width)\n"
        "    def page(i):\n"
        "        n = min(size, written - i * size)\n"
        "        k, v = keys[table[i], :n], values[table[i], :n]\n"
        "        s = torch.einsum('kgd,nkd->kgn', q, k) * scale\n"
        "        lse = s.logsumexp(-1, keepdim=True)\n"
        "        return torch.einsum('kgn,nkd->kgd', (s - lse).exp(), v), lse\n"
        "    count = (written + size - 1) // size\n"
        "    \n"
        "    def both(a, b):\n"
        "        lse = torch.logaddexp(a[1], b[1])\n"
        "        return a[0] * (a[1] - lse).exp() + b[0] * (b[1] - lse).exp(), lse\n"
        "    return functools.reduce(both, map(page, range(count)))[0].flatten(0, 1)\n",
        "",
    ),
    "halves, recursively": (
        "import torch, math, functools\n"
        "def attend_by_page(query, keys, values, table, written, scale):\n"
        "    size, kv, width = keys.shape[1:]\n"
        "    q = query.view(kv, -1, width)\n"
        "    def page(i):\n"
        "        n = min(size, written - i * size)\n"
        "        k, v = keys[table[i], :n], values[table[i], :n]\n"
        "        s = torch.einsum('kgd,nkd->kgn', q, k) * scale\n"
        "        lse = s.logsumexp(-1, keepdim=True)\n"
        "        return torch.einsum('kgn,nkd->kgd', (s - lse).exp(), v), lse\n"
        "    count = (written + size - 1) // size\n"
        "    \n"
        "    def span(lo, hi):\n"
        "        if hi - lo == 1:\n"
        "            return page(lo)\n"
        "        a, b = span(lo, (lo + hi) // 2), span((lo + hi) // 2, hi)\n"
        "        top = torch.maximum(a[1], b[1])\n"
        "        x, y = (a[1] - top).exp(), (b[1] - top).exp()\n"
        "        return (a[0] * x + b[0] * y) / (x + y), top + (x + y).log()\n"
        "    return span(0, count)[0].reshape(query.shape[0], -1)\n",
        "",
    ),
    "sigmoid of the difference, as a class": (
        "import torch, math, functools\n"
        "def attend_by_page(query, keys, values, table, written, scale):\n"
        "    size, kv, width = keys.shape[1:]\n"
        "    q = query.view(kv, -1, width)\n"
        "    def page(i):\n"
        "        n = min(size, written - i * size)\n"
        "        k, v = keys[table[i], :n], values[table[i], :n]\n"
        "        s = torch.einsum('kgd,nkd->kgn', q, k) * scale\n"
        "        lse = s.logsumexp(-1, keepdim=True)\n"
        "        return torch.einsum('kgn,nkd->kgd', (s - lse).exp(), v), lse\n"
        "    count = (written + size - 1) // size\n"
        "    \n"
        "    mix, lse = page(count - 1)\n"
        "    for i in reversed(range(count - 1)):\n"
        "        new, other = page(i)\n"
        "        share = torch.sigmoid(other - lse)\n"
        "        mix = torch.lerp(mix, new, share)\n"
        "        lse = lse + torch.nn.functional.softplus(other - lse)\n"
        "    return mix.flatten(0, 1)\n",
        "",
    ),
}

ANSWERS = {
    "ex-4.1": Answers(
        "slot_mapping",
        MAPPING_WRONG,
        MAPPING_RIGHT,
        likely=("not-times-size", "page-start", "index-for-id", "page-too-early", "page-too-late", "runs-on"),
    ),
    "ex-4.2": Answers(
        "attend",
        GATHER_WRONG,
        GATHER_RIGHT,
        likely=(
            "whole-last-page",
            "reserved",
            "repeat",
            "other-heads",
            "other-heads-raise",
            "wrong-axis",
            "times-zero",
            "zero-score",
            "own-token",
            "other-pages",
        ),
    ),
    "ex-4.3": Answers(
        "attend_by_page",
        BY_PAGE_WRONG,
        BY_PAGE_RIGHT,
        likely=(
            "mean-of-pages",
            "mean-by-tokens",
            "not-rescaled",
            "half-rescaled",
            "upside-down",
            "largest-falls",
            "divides-each-page",
            "heads-go-on",
            "empty-page",
            "overflow",
            "underflow",
            "one-maximum",
            "whole-last-page",
            "copies",
        ),
    ),
}
