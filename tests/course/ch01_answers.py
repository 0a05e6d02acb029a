"""Answers to the exercises of chapter 01: the wrong ones with the kind of verdict that each must get, and right ones.

All are sources, as a learner would write them in a cell. A right one may name a word that its `[ok]` must say.
"""

from __future__ import annotations

from answers import Answers


def _body(head: str, body: str, before: str = "import math\nimport numpy as np\nimport torch\n") -> str:
    return f"{before}def {head}:\n" + "".join(f"    {line}\n" for line in body.strip("\n").splitlines())


def _greedy(body: str, before: str = "import numpy as np\nimport torch\n") -> str:
    return _body("greedy(scores, ids, n)", body, before)


def _loop(step: str, end: str = "return text[len(ids):]") -> str:
    """The usual loop around a step that adds a token to `text`."""
    inside = "".join(f"    {line}\n" for line in step.strip("\n").splitlines())
    return _greedy(f"text = list(ids)\nfor _ in range(n):\n{inside}{end}")


# A stand-in for a tokenizer that cuts a text in its own way.
_TOKENIZER = (
    "def decode(ids):\n    return ''.join(chr(97 + i % 23) for i in ids)\n"
    "def encode(text):\n    return [ord(c) for c in text]\n"
)

GREEDY = Answers(
    name="greedy",
    likely=("last-only", "first-row", "other-text", "same-text"),
    wrong={
        "the last token alone": (_loop("text.append(int(scores(text[-1:])[-1].argmax()))"), "last-only"),
        "the new token alone, after the prompt": (
            _greedy(
                "now, new = list(ids), []\nfor _ in range(n):\n    best = int(scores(now)[-1].argmax())\n"
                "    new.append(best)\n    now = [best]\nreturn new"
            ),
            "last-only",
        ),
        "the new tokens without the prompt": (
            _greedy(
                "now, new = list(ids), []\nfor _ in range(n):\n    new.append(int(scores(now)[-1].argmax()))\n"
                "    now = new\nreturn new"
            ),
            "last-only",
        ),
        "the first two of the prompt get lost": (
            _greedy(
                "new = []\nfor _ in range(n):\n    new.append(int(scores((list(ids) + new)[2:])[-1].argmax()))\n"
                "return new"
            ),
            "cut",
        ),
        "a window that drops the oldest": (
            _greedy(
                "now, new = list(ids), []\nfor _ in range(n):\n    best = int(scores(now)[-1].argmax())\n"
                "    new.append(best)\n    now = now[1:] + [best]\nreturn new"
            ),
            "cut",
        ),
        "a window of 12": (_loop("text.append(int(scores(text[-12:])[-1].argmax()))"), "cut"),
        "a window of 128": (_loop("text.append(int(scores(text[-128:])[-1].argmax()))"), "cut"),
        "the first row": (_loop("text.append(int(scores(text)[0].argmax()))"), "first-row"),
        "the row before the last": (_loop("text.append(int(scores(text)[-2].argmax()))"), "other-row"),
        "the row of the prompt's end, always": (
            _loop("text.append(int(scores(text)[len(ids) - 1].argmax()))"),
            "other-row",
        ),
        "decodes and encodes again": (
            _greedy(
                "text = decode(ids)\nnew = []\nfor _ in range(n):\n    best = int(scores(encode(text))[-1].argmax())\n"
                "    text += decode([best])\n    new.append(best)\nreturn new",
                _TOKENIZER,
            ),
            "other-text",
        ),
        "decodes and encodes from the second round on": (
            _greedy(
                "now, new = list(ids), []\nfor _ in range(n):\n    best = int(scores(now)[-1].argmax())\n"
                "    new.append(best)\n    now = encode(decode(now + [best]))\nreturn new",
                _TOKENIZER,
            ),
            "other-text",
        ),
        "gives the model text": (_greedy("return [scores('One, two')[-1].argmax() for _ in range(n)]"), "text-in"),
        "the text never grows": (
            _greedy("new = []\nfor _ in range(n):\n    new.append(int(scores(ids)[-1].argmax()))\nreturn new"),
            "same-text",
        ),
        "one call for all": (_greedy("return scores(ids)[-n:].argmax(dim=1).tolist()"), "one-call"),
        "largest of the whole table": (_loop("text.append(int(scores(text).argmax()))"), "no-such-id"),
        "the other axis": (_loop("text.append(int(scores(text).argmax(dim=0)[-1]))"), "axis"),
        "new tokens in front": (
            _greedy(
                "text, new = list(ids), []\nfor _ in range(n):\n    best = int(scores(text)[-1].argmax())\n"
                "    new.append(best)\n    text = [best] + text\nreturn new"
            ),
            "front",
        ),
        "the score in place of the id": (_loop("text.append(float(scores(text)[-1].max()))"), "score-for-id"),
        "the worst": (_loop("text.append(int(scores(text)[-1].argmin()))"), "not-best"),
        "the second best": (_loop("text.append(int(scores(text)[-1].topk(2).indices[1]))"), "not-best"),
        "the prompt too": (_loop("text.append(int(scores(text)[-1].argmax()))", "return text"), "prompt-too"),
        "one too few": (
            _loop("text.append(int(scores(text)[-1].argmax()))", "return text[len(ids):-1]"),
            "too-few",
        ),
        "only the last": (_loop("text.append(int(scores(text)[-1].argmax()))", "return text[-1:]"), "too-few"),
        "a round too few": (
            _greedy(
                "new = []\nfor _ in range(n - 1):\n    new.append(int(scores(list(ids) + new)[-1].argmax()))\n"
                "return new"
            ),
            "too-few",
        ),
        "gives back in the loop": (
            _greedy(
                "new = []\nfor _ in range(n):\n    new.append(int(scores(list(ids) + new)[-1].argmax()))\n"
                "    return new"
            ),
            "too-few",
        ),
        "a round too many": (
            _greedy(
                "new = []\nfor _ in range(n + 1):\n    new.append(int(scores(list(ids) + new)[-1].argmax()))\n"
                "return new"
            ),
            "count",
        ),
        "the n best of one round": (_greedy("return scores(ids)[-1].topk(n).indices.tolist()"), "one-call"),
        "append gives back nothing": (
            _greedy(
                "new = []\nfor _ in range(n):\n    best = int(scores(ids)[-1].argmax())\n    new.append(best)\n"
                "    ids = ids.append(best)\nreturn new"
            ),
            "none-in",
        ),
        "a row that does not exist": (_loop("text.append(int(scores(text)[len(text)].argmax()))"), "raised IndexError"),
        "a score, cut to a whole number": (_loop("text.append(int(scores(text)[-1].max()))"), "score-for-id"),
        "a number": (_loop("text.append(int(scores(text)[-1].argmax()))", "return text[-1]"), "not-a-list"),
        "text": (_loop("text.append(int(scores(text)[-1].argmax()))", "return ' five, six'"), "text"),
        "nothing": (_loop("text.append(int(scores(text)[-1].argmax()))", ""), "no-return"),
        "never asks": (_greedy("return [0] * n"), "no-model"),
        "nothing to go on with": (
            _greedy("new = []\nfor _ in range(n):\n    new.append(int(scores(new)[-1].argmax()))\nreturn new"),
            "no-text",
        ),
    },
    right={
        "a list that grows": (_loop("text.append(int(scores(text)[-1].argmax()))"), ""),
        "the caller's list grows": (
            _greedy("for _ in range(n):\n    ids.append(scores(ids)[-1].argmax().item())\nreturn ids[-n:]"),
            "`list(ids)`",
        ),
        "new ones apart": (
            _greedy("new = []\nfor _ in range(n):\n    new += [int(scores([*ids, *new])[-1].argmax())]\nreturn new"),
            "",
        ),
        "softmax first, and numpy": (
            _loop("row = torch.softmax(scores(text)[-1], dim=-1).numpy()\ntext = text + [np.argmax(row)]"),
            "",
        ),
        "in tensors, two axes": (
            _greedy(
                "text = torch.tensor([ids])\nwhile text.shape[1] < len(ids) + n:\n"
                "    best = scores(text)[-1:].argmax(dim=-1, keepdim=True)\n    text = torch.cat([text, best], dim=1)\n"
                "return text[0, len(ids):]"
            ),
            "",
        ),
        "all rows, then the last": (
            _loop("guesses = scores(text).argmax(dim=1)\ntext.append(guesses[-1])", "return tuple(text[-n:])"),
            "",
        ),
        "recursion": (
            _greedy(
                "if n == 0:\n    return []\nbest = int(scores(ids)[-1].argmax())\n"
                "return [best] + greedy(scores, list(ids) + [best], n - 1)"
            ),
            "",
        ),
        "given one by one": (
            _greedy(
                "text = list(ids)\nfor _ in range(n):\n    text.append(int(scores(text)[-1].argmax()))\n"
                "    yield text[-1]"
            ),
            "",
        ),
        "numbers in tensors": (_loop("text.append(scores(text)[-1].argmax())"), ""),
        "plain Python": (_loop("row = scores(text)[-1].tolist()\ntext.append(row.index(max(row)))"), ""),
        "asks twice a round": (
            _loop("best = scores(text).argmax(-1)\nassert len(scores(text)) == len(best)\ntext.append(int(best[-1]))"),
            "",
        ),
    },
)


def _changed(body: str, before: str = "import numpy as np\nimport torch\n") -> str:
    return _body("changed(look, ids, extra, where)", body, before)


_LONGER = "longer = ids[:where] + [extra] + ids[where:]\n"
_AT = "at = [i if i < where else i + 1 for i in range(len(ids))]\n"


def _compare(moved: str, start: str = _LONGER + _AT, end: str = "return result") -> str:
    """The usual two looks, around a comparison that gives one truth value for each position."""
    return _changed(
        f"{start}result = []\nfor old, new in zip(look(ids), look(longer)):\n    moved = {moved}\n"
        f"    result.append([i for i in range(len(ids)) if moved[i]])\n{end}"
    )


_ANY = "((new[at] - old).abs() > 1e-4).flatten(1).any(1)"

CHANGED = Answers(
    name="changed",
    likely=("shifted", "one-layer", "new-too", "always-shifted", "exact"),
    wrong={
        "the same position": (_compare("((new[:-1] - old).abs() > 1e-4).flatten(1).any(1)"), "shifted"),
        "always the next position": (_compare("((new[1:] - old).abs() > 1e-4).flatten(1).any(1)"), "always-shifted"),
        "layer 0 in a list": (_compare(_ANY, end="return result[:1]"), "one-layer"),
        "layer 0 alone": (_compare(_ANY, end="return result[0]"), "one-layer"),
        "layer 0 for all": (_compare(_ANY, end="return [result[0]] * len(result)"), "one-layer"),
        "numbers of the longer text": (
            _compare(_ANY, end="return [[at[i] for i in each] for each in result]"),
            "numbering",
        ),
        "the new one among them": (
            _compare(_ANY, end="return [[at[i] for i in each] + [where] for each in result]"),
            "new-too",
        ),
        "the new one counts as changed": (
            _compare(_ANY, end="return [sorted({*each, where}) for each in result]"),
            "new-too",
        ),
        "not exactly the same": (_compare("(new[at] != old).flatten(1).any(1)"), "exact"),
        "torch.equal": (
            _compare("[not torch.equal(new[at[i]], old[i]) for i in range(len(ids))]"),
            "exact",
        ),
        "allclose as it is": (
            _compare("[not torch.allclose(new[at[i]], old[i]) for i in range(len(ids))]"),
            "exact",
        ),
        "only what grew": (_compare("((new[at] - old) > 1e-4).flatten(1).any(1)"), "sign"),
        "only what shrank": (_compare("((old - new[at]) > 1e-4).flatten(1).any(1)"), "sign"),
        "a mean of sizes": (_compare("(new[at] - old).abs().flatten(1).mean(1) > 1e-4"), "coarse"),
        "a large tolerance": (_compare("((new[at] - old).abs() > 0.1).flatten(1).any(1)"), "coarse"),
        "the one at `where` stays": (
            _compare(_ANY, _LONGER + "at = [i if i <= where else i + 1 for i in range(len(ids))]\n"),
            "boundary",
        ),
        "one layer shorter by one": (
            _compare(_ANY, _LONGER + "at = [i if i < where - 1 else i + 1 for i in range(len(ids))]\n"),
            "other",
        ),
        "all or none": (
            _changed(
                f"{_LONGER}{_AT}return [list(range(len(ids))) if ((new[at] - old).abs() > 1e-4).any() else []\n"
                "    for old, new in zip(look(ids), look(longer))]"
            ),
            "other",
        ),
        "over all layers": (
            _compare(_ANY, end="return sorted({i for each in result for i in each})"),
            "one-layer",
        ),
        "by position, not by layer": (
            _compare(_ANY, end="return [[k for k, each in enumerate(result) if i in each] for i in range(len(ids))]"),
            "shape",
        ),
        "no second look": (_changed("return [list(range(where, len(ids))) for _ in look(ids)]"), "one-text"),
        "printed": (_compare(_ANY, end="print(result)"), "no-return"),
        "the sum of differences": (_compare("(new[at] - old).flatten(1).sum(1).abs() > 1e-4"), "cancel"),
        "the mean of each": (
            _compare("(new[at].flatten(1).mean(1) - old.flatten(1).mean(1)).abs() > 1e-4"),
            "cancel",
        ),
        "all of its numbers": (_compare(_ANY.replace("any", "all")), "all"),
        "head 0": (_compare("((new[at][:, 0] - old[:, 0]).abs() > 1e-4).any(1)"), "part"),
        "those that stay": (_compare(_ANY.replace(">", "<=").replace("any", "all")), "unchanged"),
        "what one believes": (
            _changed(
                "look(ids), look(ids[:where] + [extra] + ids[where:])\n"
                "return [[]] + [list(range(where, len(ids))) for _ in look(ids)[1:]]"
            ),
            "belief",
        ),
        "believed, not looked": (_changed("return [[]] + [list(range(where, len(ids)))] * 5"), "no-look"),
        "one axis too long": (_compare("((new - old).abs() > 1e-4).flatten(1).any(1)"), "lengths"),
        "one lost": (
            _compare(_ANY, "longer = ids[:where] + [extra] + ids[where + 1:]\nat = list(range(len(ids)))\n"),
            "replaced",
        ),
        "always in front": (_compare(_ANY, f"longer = [extra] + ids\n{_AT}"), "place"),
        "put in before looking": (
            _changed(
                "text = ids\ntext.insert(where, extra)\nreturn [[] for old, new in zip(look(ids), look(text))]",
            ),
            "one-text",
        ),
        "finds each token by its number": (
            _compare(_ANY, _LONGER + "at = [longer.index(token) for token in ids]\n"),
            "by-token",
        ),
        "a dict from token to row": (
            _changed(
                f"{_LONGER}result = []\nfor old, new in zip(look(ids), look(longer)):\n"
                "    before, after = dict(zip(ids, old)), dict(zip(longer, new))\n"
                "    result.append([i for i, t in enumerate(ids) if (after[t] - before[t]).abs().max() > 1e-4])\n"
                "return result"
            ),
            "by-token",
        ),
        "names each by the first place of its token": (
            _compare(_ANY, end="return [[ids.index(ids[i]) for i in each] for each in result]"),
            "by-token",
        ),
        "12 tokens, always": (
            _changed(
                f"{_LONGER}return [[i for i in range(12) if (new[i + (i >= where)] - old[i]).abs().max() > 1e-4]\n"
                "    for old, new in zip(look(ids), look(longer))]"
            ),
            "fixed-length",
        ),
        "12 rows, always": (
            _compare(_ANY, _LONGER + "at = [i + (i >= where) for i in range(12)]\n"),
            "fixed-length",
        ),
        "yes and no": (_changed(f"{_LONGER}{_AT}return [{_ANY} for old, new in zip(look(ids), look(longer))]"), "mask"),
        "each number of each position": (
            _changed(
                f"{_LONGER}{_AT}return [((new[at] - old).abs() > 1e-4).nonzero()[:, 0].tolist() "
                "for old, new in zip(look(ids), look(longer))]"
            ),
            "twice",
        ),
        "counts": (_compare(_ANY, end="return [len(each) for each in result]"), "one-layer"),
        "a dict": (_compare(_ANY, end="return dict(enumerate(result))"), "shape"),
        "nothing": (_compare(_ANY, end=""), "no-return"),
    },
    right={
        "an index": (_compare(_ANY), ""),
        "two halves": (
            _changed(
                f"{_LONGER}a, b = look(ids), look(longer)\nresult = []\nfor old, new in zip(a, b):\n"
                "    new = torch.cat((new[:where], new[where + 1:]))\n"
                "    result.append(torch.where(((new - old).abs() > 1e-4).flatten(1).any(1))[0])\nreturn result"
            ),
            "",
        ),
        "loops": (
            _changed(
                "longer = list(ids)\nlonger.insert(where, extra)\nold, new = look(ids), look(longer)\nresult = []\n"
                "for layer in range(len(old)):\n    positions = []\n    for i in range(len(ids)):\n"
                "        j = i + 1 if i >= where else i\n"
                "        if (new[layer][j] - old[layer][i]).abs().max() > 0.0001:\n            positions.append(i)\n"
                "    result.append(positions)\nreturn result"
            ),
            "",
        ),
        "numpy, in sets": (
            _changed(
                f"{_LONGER}result = []\nfor old, new in zip(look(ids), look(longer)):\n"
                "    new = np.delete(np.asarray(new), where, axis=0)\n"
                "    far = ~np.isclose(new, np.asarray(old), rtol=0, atol=1e-4)\n"
                "    result.append(set(np.nonzero(far.any(axis=(1, 2)))[0]))\nreturn tuple(result)"
            ),
            "",
        ),
        "allclose with a tolerance": (
            _compare("[not torch.allclose(new[at[i]], old[i], atol=1e-4) for i in range(len(ids))]"),
            "",
        ),
        "a norm": (_compare("(new[at] - old).flatten(1).norm(dim=1) > 1e-3"), ""),
        "the caller's list grows": (
            _changed(
                "before = look(ids)\nids.insert(where, extra)\nafter = look(ids)\nresult = []\n"
                "for old, new in zip(before, after):\n"
                "    keep = [i for i in range(len(ids)) if i != where]\n"
                "    moved = (new[keep] - old).abs().amax((1, 2)) > 1e-4\n"
                "    result.append(moved.nonzero().flatten())\n"
                "return result"
            ),
            "`list(ids)`",
        ),
        "one layer at a time": (
            _changed(
                "text = list(ids)\ntext.insert(where, extra)\nfor old, new in zip(look(ids), look(text)):\n"
                "    yield [i for i in range(len(ids)) if (old[i] - new[i + (i >= where)]).abs().max() > 0.0001]"
            ),
            "",
        ),
        "a mask": (
            _changed(
                f"{_LONGER}keep = torch.arange(len(longer)) != where\nreturn [\n"
                "    ((new[keep] - old).abs() > 1e-4).flatten(1).any(1).nonzero().tolist()\n"
                "    if False else [int(i) for i in ((new[keep] - old).abs() > 1e-4).flatten(1).any(1).nonzero()]\n"
                "    for old, new in zip(look(ids), look(longer))]"
            ),
            "",
        ),
    },
)


def _attend(body: str) -> str:
    return _body("attend(query, own_key, own_value, old_keys, old_values)", body)


_ALL = "K = torch.vstack([old_keys, own_key])\nV = torch.vstack([old_values, own_value])\n"
_SCORES = "s = K @ query / len(query) ** 0.5\n"


def _rows(
    scores: str = "s = K @ query / len(query) ** 0.5", weights: str = "torch.softmax(s, dim=0)", end: str = ""
) -> str:
    return _attend(f"{_ALL}{scores}\nw = {weights}\n{end or 'return w, w @ V'}")


ATTEND = Answers(
    name="attend",
    likely=("no-scale", "axis", "own-left-out", "keys-carried"),
    wrong={
        "no scale": (_rows("s = K @ query"), "no-scale"),
        "no scale, softmax by hand": (_rows("s = K @ query", "s.exp() / s.exp().sum()"), "no-scale"),
        "divided by the width": (_rows("s = K @ query / len(query)"), "other-scale"),
        "times the root": (_rows("s = K @ query * len(query) ** 0.5"), "other-scale"),
        "divided by 8": (_rows("s = K @ query / 8"), "fixed-scale"),
        "divided by 2": (_rows("s = K @ query / 2"), "other-scale"),
        "the fourth root": (_rows("s = K @ query / len(query) ** 0.25"), "other-scale"),
        "the logarithm": (_rows("s = K @ query / math.log2(len(query))"), "other-scale"),
        "printed": (_rows(end="print(w, w @ V)"), "no-return"),
        "keys in another order than values": (
            _rows("K = torch.vstack([own_key, old_keys])\ns = K @ query / len(query) ** 0.5"),
            "order",
        ),
        "rows on end": (_rows("K = torch.cat([old_keys, own_key])\ns = K @ query"), "raised RuntimeError"),
        "the root of the text's length": (_rows("s = K @ query / len(K) ** 0.5"), "other-scale"),
        "scaled behind the softmax": (
            _rows("s = K @ query", "torch.softmax(s, dim=0) / len(query) ** 0.5"),
            "late-scale",
        ),
        "softmax over one number each": (
            _rows(weights="torch.softmax(s[:, None], dim=-1)", end="return w, (w * V).sum(0)"),
            "axis",
        ),
        "softmax over one number each, as rows": (
            _rows("s = query[None] @ K.T / len(query) ** 0.5", "torch.softmax(s, dim=0)", "return w, w @ V"),
            "axis",
        ),
        "not divided by the sum": (_rows(weights="s.exp()"), "not-shared"),
        "scores as weights": (_rows(weights="s"), "no-softmax"),
        "divided without exp": (_rows(weights="s / s.sum()"), "no-softmax"),
        "its own left out": (
            _attend(
                "w = torch.softmax(old_keys @ query / len(query) ** 0.5, 0)\nreturn w, w @ old_values",
            ),
            "own-left-out",
        ),
        "its own value left out": (_rows(end="return w, w[:-1] @ old_values"), "own-left-out"),
        "keys carried away": (_rows(end="return w, w @ K"), "keys-carried"),
        "query asks values": (_rows("s = V @ query / len(query) ** 0.5"), "values-asked"),
        "its key asks": (_rows("s = K @ own_key / len(query) ** 0.5"), "no-query"),
        "products not added": (
            _rows("s = K * query / len(query) ** 0.5", end="return w, (w * V).sum(0)"),
            "not-added",
        ),
        "values not added": (_rows(end="return w, w[:, None] * V"), "not-summed"),
        "only the largest": (_rows(end="return w, V[w.argmax()]"), "winner"),
        "a plain mean": (_rows(end="return w, V.mean(0)"), "mean"),
        "the new token first": (
            _attend(
                "K = torch.vstack([own_key, old_keys])\nV = torch.vstack([own_value, old_values])\n"
                "w = torch.softmax(K @ query / len(query) ** 0.5, dim=0)\nreturn w, w @ V"
            ),
            "order",
        ),
        "the new value first": (_rows(end="return w, w @ torch.vstack([own_value, old_values])"), "order"),
        "the result first": (_rows(end="return w @ V, w"), "swapped"),
        "the result alone": (_rows(end="return w @ V"), "shape"),
        "nothing": (_rows(end="w @ V"), "no-return"),
        "texts": (_rows(end="return 'much', 'little'"), "shape"),
    },
    right={
        "four lines": (_rows(), ""),
        "softmax by hand": (
            _rows(weights="(s - s.max()).exp()", end="w = w / w.sum()\nreturn [w, w @ V]"),
            "",
        ),
        "softmax of the lesson": (_rows(weights="torch.exp(s) / torch.exp(s).sum()"), ""),
        "with rows": (
            _rows(
                "s = query[None] @ K.T / math.sqrt(query.shape[-1])",
                "torch.softmax(s, dim=-1)",
                "return w, w @ V",
            ),
            "",
        ),
        "numpy": (
            _attend(
                "K = np.vstack([old_keys.numpy(), own_key.numpy()])\n"
                "V = np.concatenate([np.asarray(old_values), np.asarray(own_value)[None]])\n"
                "s = K.dot(query.numpy()) / np.sqrt(K.shape[1])\ne = np.exp(s - s.max())\nw = e / e.sum()\n"
                "return w, w.dot(V)"
            ),
            "",
        ),
        "loops in plain Python": (
            _attend(
                "keys = old_keys.tolist() + [own_key.tolist()]\nvalues = old_values.tolist() + [own_value.tolist()]\n"
                "scores = [sum(q * k for q, k in zip(query.tolist(), key)) / len(query) ** 0.5 for key in keys]\n"
                "grown = [math.exp(score) for score in scores]\nweights = [g / sum(grown) for g in grown]\n"
                "result = [sum(w * v[i] for w, v in zip(weights, values)) for i in range(len(query))]\n"
                "return weights, result"
            ),
            "",
        ),
        "the query is made smaller": (_rows("s = K @ (query * query.numel() ** -0.5)"), ""),
        "the new token apart": (
            _attend(
                "scale = len(query) ** 0.5\nold = old_keys @ query / scale\nown = (own_key * query).sum() / scale\n"
                "w = torch.cat([old, own[None]]).softmax(-1)\n"
                "return w, w[:-1] @ old_values + w[-1] * own_value"
            ),
            "",
        ),
        "torch's own function for the result": (
            _rows(
                end="r = torch.nn.functional.scaled_dot_product_attention(query[None, None], K[None], V[None])\n"
                "return w, r"
            ),
            "",
        ),
    },
)

CHANGED.wrong.update(
    {
        "layers without an end": (
            _changed("look(ids), look(ids[:where] + [extra] + ids[where:])\nwhile True:\n    yield []"),
            "shape",
        ),
        "drops every row of the extra token": (
            "import torch\n"
            "def changed(look, ids, extra, where):\n"
            "    longer = ids[:where] + [extra] + ids[where:]\n"
            "    at = [i for i, t in enumerate(longer) if t != extra]\n"
            "    result = []\n"
            "    for old, new in zip(look(ids), look(longer)):\n"
            "        moved = ((new[at] - old).abs() > 1e-4).flatten(1).any(1); "
            "result.append(moved.nonzero().flatten().tolist())\n"
            "    return result\n",
            "same-token",
        ),
        "finds the extra by index": (
            "import torch\n"
            "def changed(look, ids, extra, where):\n"
            "    longer = ids[:where] + [extra] + ids[where:]\n"
            "    at = [i + (i >= longer.index(extra)) for i in range(len(ids))]\n"
            "    result = []\n"
            "    for old, new in zip(look(ids), look(longer)):\n"
            "        moved = ((new[at] - old).abs() > 1e-4).flatten(1).any(1); "
            "result.append(moved.nonzero().flatten().tolist())\n"
            "    return result\n",
            "same-token",
        ),
        "everything after the first changed": (
            "import torch\n"
            "def changed(look, ids, extra, where):\n"
            "    longer = ids[:where] + [extra] + ids[where:]\n"
            "    at = [i + (i >= where) for i in range(len(ids))]\n"
            "    result = []\n"
            "    for old, new in zip(look(ids), look(longer)):\n"
            "        moved = ((new[at] - old).abs() > 1e-4).flatten(1).any(1); "
            "result.append(list(range(int(moved.nonzero()[0]), len(ids))) if moved.any() else [])\n"
            "    return result\n",
            "exact",
        ),
        "cosine": (
            "import torch\n"
            "def changed(look, ids, extra, where):\n"
            "    longer = ids[:where] + [extra] + ids[where:]\n"
            "    at = [i + (i >= where) for i in range(len(ids))]\n"
            "    result = []\n"
            "    for old, new in zip(look(ids), look(longer)):\n"
            "        result.append([i for i in range(len(ids)) if 1 - "
            "torch.cosine_similarity(new[at[i]].flatten(), old[i].flatten(), dim=0) > 1e-4])\n"
            "    return result\n",
            "coarse",
        ),
        "percent of the norm": (
            "import torch\n"
            "def changed(look, ids, extra, where):\n"
            "    longer = ids[:where] + [extra] + ids[where:]\n"
            "    at = [i + (i >= where) for i in range(len(ids))]\n"
            "    result = []\n"
            "    for old, new in zip(look(ids), look(longer)):\n"
            "        result.append([i for i in range(len(ids)) if (new[at[i]] - old[i]).norm() > 1e-3 * "
            "old[i].norm()])\n"
            "    return result\n",
            "coarse",
        ),
    }
)
CHANGED.right.update(
    {
        "threads": (
            "from concurrent.futures import ThreadPoolExecutor\n"
            "def changed(look, ids, extra, where):\n"
            "    with ThreadPoolExecutor(2) as pool:\n"
            "        a, b = pool.map(look, (ids, ids[:where] + [extra] + ids[where:]))\n"
            "    out = []\n"
            "    for old, new in zip(a, b):\n"
            "        out.append([i for i in range(len(ids)) if (old[i] - new[i + (i >= "
            "where)]).abs().max() > 1e-4])\n"
            "    return out\n",
            "",
        ),
        "works in place, tensors given": (
            "import torch\n"
            "def changed(look, ids, extra, where):\n"
            "    ids = torch.tensor(ids)\n"
            "    longer = torch.cat([ids[:where], torch.tensor([extra]), ids[where:]])\n"
            "    out = {}\n"
            "    for k, (old, new) in enumerate(zip(look(ids), look(longer))):\n"
            "        old[:where] -= new[:where]\n"
            "        old[where:] -= new[where + 1:]\n"
            "        old.abs_()\n"
            "        out[k] = frozenset(old.amax((1, 2)).gt(1e-4).nonzero().flatten().tolist())\n"
            "    return out.values()\n",
            "",
        ),
        "a class for a position, recursion over layers": (
            "from dataclasses import dataclass\n"
            "@dataclass\n"
            "class Moved:\n"
            "    where: int\n"
            "    def new(self, i):\n"
            "        return i if i < self.where else i + 1\n"
            "def changed(look, ids, extra, where):\n"
            "    m = Moved(where)\n"
            "    def rest(layers):\n"
            "        if not layers:\n"
            "            return []\n"
            "        (old, new), *more = layers\n"
            "        return [filter(lambda i: float((old[i] - new[m.new(i)]).abs().max()) > 1e-4, "
            "range(len(ids)))] + rest(more)\n"
            "    return rest(list(zip(look(ids), look([*ids[:where], extra, *ids[where:]]))))\n",
            "",
        ),
    }
)

ANSWERS = {"ex-1.1": GREEDY, "ex-1.2": CHANGED, "ex-1.3": ATTEND}
