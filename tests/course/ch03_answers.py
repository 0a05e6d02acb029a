"""Answers to the exercises of chapter 03: the wrong ones with the kind of verdict that each must get, and right ones.

All are sources, as a learner would write them in a cell. A right one may name a word that its `[ok]` must say.
"""

from __future__ import annotations

from answers import Answers

PAGES_NAME, ALLOCATOR_NAME, READING_NAME = "pages_and_empty", "Allocator", "read_page"


def _pages(pages: str, empty: str = "pages * page_size - tokens") -> str:
    return f"import math\ndef pages_and_empty(tokens, page_size):\n    pages = {pages}\n    return pages, {empty}\n"


PAGES_WRONG = {
    "one more always": (_pages("tokens // page_size + 1"), "one-too-many"),
    "rounded down": (_pages("tokens // page_size"), "rounded-down"),
    "int of a float": (_pages("int(tokens / page_size)"), "rounded-down"),
    "rounded": (_pages("round(tokens / page_size)"), "rounded"),
    "rounded by hand": (_pages("int(tokens / page_size + 0.5)"), "rounded"),
    "one off": (_pages("(tokens + page_size) // page_size + 1"), "other pages"),
    "rest for empty": (_pages("-(-tokens // page_size)", "tokens % page_size"), "used-for-empty"),
    "a full page is empty": (_pages("-(-tokens // page_size)", "page_size - tokens % page_size"), "full-page-empty"),
    "never empty": (_pages("-(-tokens // page_size)", "0"), "other empty slots"),
    "float pages": (_pages("tokens / page_size"), "not-whole"),
    "a page for nobody": (_pages("max(1, -(-tokens // page_size))"), "other pages"),
    "one number": ("def pages_and_empty(tokens, page_size):\n    return -(-tokens // page_size)\n", "shape"),
    "a text": ("def pages_and_empty(tokens, page_size):\n    return 'two'\n", "shape"),
}

PAGES_RIGHT = {
    "twice negative": (_pages("-(-tokens // page_size)"), ""),
    "add one page less one": (_pages("(tokens + page_size - 1) // page_size"), ""),
    "one less": (_pages("(tokens - 1) // page_size + 1"), ""),
    "remainder": (_pages("tokens // page_size + (tokens % page_size > 0)", "-tokens % page_size"), ""),
    "float ceiling": (_pages("math.ceil(tokens / page_size)"), "2**53"),
    "a list": (
        "def pages_and_empty(tokens, page_size):\n"
        "    pages, used = divmod(tokens, page_size)\n"
        "    if used == 0:\n"
        "        return [pages, 0]\n"
        "    return [pages + 1, page_size - used]\n",
        "",
    ),
    "counting to the end": (
        "def pages_and_empty(tokens, page_size):\n"
        "    pages = 0\n"
        "    while pages * page_size < tokens:\n"
        "        pages += 1\n"
        "    return pages, pages * page_size - tokens\n",
        "You count page by page",
    ),
    "taking away": (
        "def pages_and_empty(tokens, page_size):\n"
        "    left, pages = tokens, 0\n"
        "    while left > 0:\n"
        "        left -= page_size\n"
        "        pages += 1\n"
        "    return pages, -left\n",
        "You count page by page",
    ),
    "counting": (
        "def pages_and_empty(tokens, page_size):\n"
        "    if tokens > 10**7:\n"
        "        return -(-tokens // page_size), -tokens % page_size\n"
        "    pages = 0\n"
        "    while pages * page_size < tokens:\n"
        "        pages += 1\n"
        "    return pages, pages * page_size - tokens\n",
        "",
    ),
}


def _allocator(init: str, allocate: str, free: str) -> str:
    """A class from the bodies of its three methods, one statement a line."""
    parts = (("__init__(self, num_pages)", init), ("allocate(self, n)", allocate), ("free(self, pages)", free))
    text = "import bisect\nimport heapq\nfrom collections import deque\nclass Allocator:\n"
    for head, body in parts:
        text += f"    def {head}:\n" + "".join(f"        {line}\n" for line in body.strip("\n").splitlines())
    return text


_INIT = "self.pool = list(range(num_pages))\nself.lent = set()"
_CHECKED = "if n > len(self.pool):\n    raise MemoryError('too few')\n"
_TAKE = "grant = [self.pool.pop() for _ in range(n)]\nself.lent.update(grant)\nreturn grant"
_FREE = "for page in pages:\n    self.lent.remove(page)\n    self.pool.append(page)"

ALLOCATOR_WRONG = {
    "pops until it breaks": (_allocator(_INIT, _TAKE, _FREE), "partial"),
    "pops one by one, then raises": (
        _allocator(
            _INIT,
            "grant = []\nwhile len(grant) < n:\n    if not self.pool:\n        raise MemoryError\n"
            "    grant.append(self.pool.pop())\n    self.lent.add(grant[-1])\nreturn grant",
            _FREE,
        ),
        "partial",
    ),
    "gives what there is": (
        _allocator(
            _INIT, "grant = self.pool[:n]\nself.pool = self.pool[n:]\nself.lent |= set(grant)\nreturn grant", _FREE
        ),
        "short-grant",
    ),
    "answers None": (_allocator(_INIT, f"if n > len(self.pool):\n    return None\n{_TAKE}", _FREE), "no-exception"),
    "answers an empty list": (
        _allocator(_INIT, f"if n > len(self.pool):\n    return []\n{_TAKE}", _FREE),
        "no-exception",
    ),
    "lends at the limit only": (
        _allocator(_INIT, f"if n >= len(self.pool):\n    raise MemoryError\n{_TAKE}", _FREE),
        "too-strict",
    ),
    "double free": (_allocator(_INIT, _CHECKED + _TAKE, "self.pool.extend(pages)"), "double-free"),
    "double free in one call": (
        _allocator(
            _INIT,
            _CHECKED + _TAKE,
            "if not self.lent.issuperset(pages):\n    raise ValueError\n"
            "self.lent -= set(pages)\nself.pool.extend(pages)",
        ),
        "double-free",
    ),
    "raises too late": (
        _allocator(
            _INIT, _CHECKED + _TAKE, "for page in pages:\n    self.pool.append(page)\n    self.lent.remove(page)"
        ),
        "double-free",
    ),
    "double free is swallowed": (
        _allocator(
            _INIT,
            _CHECKED + _TAKE,
            "for page in pages:\n    if page in self.lent:\n"
            "        self.lent.discard(page)\n        self.pool.append(page)",
        ),
        "silent-double-free",
    ),
    "counts from the end": (
        _allocator(
            "self.pool = list(range(num_pages))\nself.out = [False] * num_pages",
            _CHECKED + "grant = [self.pool.pop() for _ in range(n)]\n"
            "for page in grant:\n    self.out[page] = True\nreturn grant",
            "for page in pages:\n    if not self.out[page]:\n        raise ValueError\n    self.out[page] = False\n"
            "    self.pool.append(page)",
        ),
        "foreign-page",
    ),
    "lends everything for allocate(0)": (
        _allocator(
            _INIT,
            _CHECKED + "grant = self.pool[-n:]\ndel self.pool[-n:]\nself.lent.update(grant)\nreturn tuple(grant)",
            _FREE,
        ),
        "wrong-count",
    ),
    "asks the free list": (
        _allocator(
            "self.pool = list(range(num_pages))",
            _CHECKED + "return [self.pool.pop() for _ in range(n)]",
            "for page in pages:\n    if page in self.pool:\n        raise ValueError(page)\n    self.pool.append(page)",
        ),
        "foreign-page",
    ),
    "takes back whole grants only": (
        _allocator(
            "self.pool = list(range(num_pages))\nself.grants = []",
            _CHECKED + "grant = [self.pool.pop() for _ in range(n)]\nself.grants.append(list(grant))\nreturn grant",
            "self.grants.remove(list(pages))\nself.pool.extend(pages)",
        ),
        "grants",
    ),
    "searches the free list": (
        _allocator(
            "self.pool = list(range(num_pages))",
            _CHECKED + "return [self.pool.pop() for _ in range(n)]",
            "for page in pages:\n    if page in self.pool or not 0 <= page:\n        raise ValueError\n"
            "    if page > 70000 or page == 99 and len(self.pool) < 9:\n        raise ValueError\n"
            "    self.pool.append(page)",
        ),
        "slow",
    ),
    "searches a list of the lent": (
        _allocator(
            "self.pool = list(range(num_pages))\nself.lent = []",
            _CHECKED + "grant = [self.pool.pop() for _ in range(n)]\nself.lent += grant\nreturn grant",
            "for page in pages:\n    self.lent.remove(page)\n    self.pool.append(page)",
        ),
        "slow",
    ),
    "looks at every flag": (
        _allocator(
            "self.out = [False] * num_pages",
            "grant = [page for page, out in enumerate(self.out) if not out][:n]\nif len(grant) < n:\n"
            "    raise MemoryError\nfor page in grant:\n    self.out[page] = True\nreturn grant",
            "for page in pages:\n    if page < 0 or not self.out[page]:\n"
            "        raise ValueError\n    self.out[page] = False",
        ),
        "slow",
    ),
    "compares every page with every lent one": (
        _allocator(
            "self.size = num_pages\nself.lent = []",
            "grant = [page for page in range(self.size) if page not in self.lent][:n]\nif len(grant) < n:\n"
            "    raise MemoryError\nself.lent += grant\nreturn grant",
            "for page in pages:\n    self.lent.remove(page)",
        ),
        "slow",
    ),
    "takes from the front of a list": (
        _allocator(_INIT, _CHECKED + _TAKE.replace("pop()", "pop(0)"), _FREE),
        "slow",
    ),
    "cuts a list": (
        _allocator(
            _INIT,
            _CHECKED + "grant, self.pool = self.pool[:n], self.pool[n:]\nself.lent.update(grant)\nreturn grant",
            _FREE,
        ),
        "slow",
    ),
    "smallest of a set": (
        _allocator(
            "self.pool = set(range(num_pages))\nself.lent = set()",
            _CHECKED
            + "grant = []\nfor _ in range(n):\n    grant.append(min(self.pool))\n    self.pool.remove(grant[-1])\n"
            "self.lent.update(grant)\nreturn grant",
            "for page in pages:\n    self.lent.remove(page)\n    self.pool.add(page)",
        ),
        "slow",
    ),
    "gives its list of the lent": (
        _allocator(
            "self.pool = list(range(num_pages))\nself.lent = []",
            _CHECKED + "self.lent += [self.pool.pop() for _ in range(n)]\nreturn self.lent",
            "for page in pages:\n    self.lent.remove(page)\n    self.pool.append(page)",
        ),
        "own-list",
    ),
    "keeps the list that came back": (
        _allocator(
            _INIT,
            _CHECKED + _TAKE,
            "for page in pages:\n    self.lent.remove(page)\n"
            "if self.pool:\n    self.pool += pages\nelse:\n    self.pool = pages",
        ),
        "own-list",
    ),
    "remembers its grants as they are": (
        _allocator(
            "self.pool = list(range(num_pages))\nself.grants = {}",
            _CHECKED
            + "grant = [self.pool.pop() for _ in range(n)]\nfor page in grant:\n    self.grants[page] = grant\n"
            "return grant",
            "for page in pages:\n    if page not in self.grants[page]:\n        raise ValueError\n    self.pool += "
            "[p for p in self.grants[page] if p == page or p > 80]\n    del self.grants[page]",
        ),
        "own-list",
    ),
    "lends twice": (
        _allocator("self.size = num_pages", "return list(range(n))", "pass"),
        "lent-twice",
    ),
    "forgets what comes back": (
        _allocator(_INIT, _CHECKED + _TAKE, "for page in pages:\n    self.lent.remove(page)"),
        "lost",
    ),
    "gives nothing": (_allocator(_INIT, f"{_CHECKED}self.lent.update(self.pool[:n])", _FREE), "no-return"),
    "gives a number": (_allocator(_INIT, f"{_CHECKED}return self.pool.pop()", _FREE), "not-a-list"),
    "gives numpy's numbers": (
        "import numpy as np\n"
        + _allocator("self.pool = list(np.arange(num_pages))\nself.lent = set()", _CHECKED + _TAKE, _FREE),
        "not-int",
    ),
    "starts at one": (
        _allocator("self.pool = list(range(1, num_pages + 1))\nself.lent = set()", _CHECKED + _TAKE, _FREE),
        "no-such-page",
    ),
    "one too many": (
        _allocator(_INIT, _CHECKED + _TAKE.replace("range(n)", "range(n + 1)"), _FREE),
        "wrong-count",
    ),
    "a pool, not the class": (_allocator(_INIT, _CHECKED + _TAKE, _FREE) + "Allocator = Allocator(8)\n", "not-a-class"),
}

ALLOCATOR_RIGHT = {
    "last in, first out": (_allocator(_INIT, _CHECKED + _TAKE, _FREE), ""),
    "first in, first out": (
        _allocator(
            _INIT.replace("list", "deque"),
            _CHECKED + _TAKE.replace("pop()", "popleft()"),
            _FREE,
        ),
        "",
    ),
    "smallest first, with a heap": (
        _allocator(
            _INIT,
            _CHECKED + _TAKE.replace("self.pool.pop()", "heapq.heappop(self.pool)"),
            _FREE.replace("self.pool.append(page)", "heapq.heappush(self.pool, page)"),
        ),
        "",
    ),
    "two sets": (
        _allocator(
            "self.pool, self.lent = set(range(num_pages)), set()",
            _CHECKED + _TAKE,
            "for page in pages:\n    self.lent.remove(page)\n    self.pool.add(page)",
        ),
        "",
    ),
    "gives a set": (_allocator(_INIT, _CHECKED + _TAKE.replace("return grant", "return set(grant)"), _FREE), ""),
    "flags and a stack": (
        _allocator(
            "self.pool = list(range(num_pages))\nself.out = [False] * num_pages",
            _CHECKED + "grant = [self.pool.pop() for _ in range(n)]\n"
            "for page in grant:\n    self.out[page] = True\nreturn grant",
            "for page in pages:\n    if not 0 <= page < len(self.out) or not self.out[page]:\n"
            "        raise ValueError(page)\n    self.out[page] = False\n    self.pool.append(page)",
        ),
        "",
    ),
    "all or nothing in free": (
        _allocator(
            _INIT,
            _CHECKED + "left = len(self.pool) - n\ngrant = self.pool[left:]\ndel self.pool[left:]\n"
            "self.lent.update(grant)\nreturn tuple(grant)",
            "if len(set(pages)) < len(pages) or not self.lent.issuperset(pages):\n    raise KeyError(pages)\n"
            "self.lent -= set(pages)\nself.pool.extend(pages)",
        ),
        "",
    ),
    "never lent ones by a counter": (
        _allocator(
            "self.size, self.fresh, self.back, self.lent = num_pages, 0, [], set()",
            "assert n <= self.size - self.fresh + len(self.back)\ngrant = []\nfor _ in range(n):\n"
            "    if self.back:\n        grant.append(self.back.pop())\n    else:\n        grant.append(self.fresh)\n"
            "        self.fresh += 1\nself.lent |= set(grant)\nreturn grant",
            "for page in pages:\n    assert page in self.lent\n    self.lent.discard(page)\n    self.back.append(page)",
        ),
        "",
    ),
    "a chain in an array": (
        _allocator(
            "self.next, self.head, self.count = list(range(1, num_pages + 1)), 0, num_pages",
            "if n > self.count:\n    raise Exception('full')\ngrant = []\nfor _ in range(n):\n"
            "    grant.append(self.head)\n    self.next[self.head], self.head = -1, self.next[self.head]\n"
            "self.count -= n\nreturn grant",
            "for page in pages:\n    if page not in range(len(self.next)) or self.next[page] != -1:\n"
            "        raise Exception('not lent')\n"
            "    self.next[page], self.head = self.head, page\n    self.count += 1",
        ),
        "",
    ),
    "an ordered dict": (
        _allocator(
            "self.pool, self.lent = dict.fromkeys(range(num_pages)), {}",
            _CHECKED + "grant = [self.pool.popitem()[0] for _ in range(n)]\nself.lent.update(dict.fromkeys(grant))\n"
            "return grant",
            "for page in pages:\n    del self.lent[page]\n    self.pool[page] = None",
        ),
        "",
    ),
    "wipes": (
        _allocator(
            _INIT + "\nself.notes = {}",
            _CHECKED + _TAKE,
            "for page in pages:\n    self.lent.remove(page)\n    self.wipe(page)\n    self.pool.append(page)",
        )
        + "    def wipe(self, page):\n        self.notes[page] = 0\n",
        "wipes",
    ),
}


def _reading(*lines: str) -> str:
    return "import torch\ndef read_page(pool, page, hf):\n" + "".join(f"    {line}\n" for line in lines)


_LAYER = "layer = hf.model.layers[0]"
_WORDS = "words = hf.get_input_embeddings().weight"
_VALUES = "known = layer.self_attn.v_proj(layer.input_layernorm(words))"
_FOUND = "found = pool.values[0][page].flatten(1)"
_NEAREST = "return torch.cdist(found, known).argmin(dim=1).tolist()"

READING_WRONG = {
    "keys": (
        _reading(_LAYER, _WORDS, _VALUES.replace("v_proj", "k_proj"), _FOUND.replace("values", "keys"), _NEAREST),
        "keys",
    ),
    "keys against values": (_reading(_LAYER, _WORDS, _VALUES, _FOUND.replace("values", "keys"), _NEAREST), "keys"),
    "values against keys": (_reading(_LAYER, _WORDS, _VALUES.replace("v_proj", "k_proj"), _FOUND, _NEAREST), "keys"),
    "no norm": (_reading(_LAYER, _WORDS, "known = layer.self_attn.v_proj(words)", _FOUND, _NEAREST), "norm"),
    "no norm, by angle": (
        _reading(
            _LAYER,
            _WORDS,
            "unit = lambda x: x / x.norm(dim=1, keepdim=True)",
            "known = layer.self_attn.v_proj(words)",
            _FOUND,
            "return (unit(found) @ unit(known).T).argmax(dim=1).tolist()",
        ),
        "norm",
    ),
    "the last norm": (
        _reading(_LAYER, _WORDS, _VALUES.replace("layer.input_layernorm", "hf.model.norm"), _FOUND, _NEAREST),
        "norm",
    ),
    "layer 5": (
        _reading(_LAYER.replace("0", "5"), _WORDS, _VALUES, _FOUND.replace("[0]", "[5]"), _NEAREST),
        "layer",
    ),
    "layer 5 in the pool": (_reading(_LAYER, _WORDS, _VALUES, _FOUND.replace("[0]", "[5]"), _NEAREST), "layer"),
    "layer 5 in the list": (_reading(_LAYER.replace("0", "5"), _WORDS, _VALUES, _FOUND, _NEAREST), "layer"),
    "embeddings": (_reading(_WORDS, _FOUND, _NEAREST.replace("known", "words")), "embeddings"),
    "embeddings behind the norm": (
        _reading(_LAYER, _WORDS, "known = layer.input_layernorm(words)", _FOUND, _NEAREST),
        "embeddings",
    ),
    "another page": (_reading(_LAYER, _WORDS, _VALUES, _FOUND.replace("page", "0"), _NEAREST), "page"),
    "layer and page swapped": (
        _reading(_LAYER, _WORDS, _VALUES, "found = pool.values[page][0].flatten(1)", _NEAREST),
        "layer",
    ),
    "the farthest": (_reading(_LAYER, _WORDS, _VALUES, _FOUND, _NEAREST.replace("argmin", "argmax")), "nearest"),
    "largest product": (
        _reading(_LAYER, _WORDS, _VALUES, _FOUND, "return (found @ known.T).argmax(dim=1).tolist()"),
        "nearest",
    ),
    "one id": (_reading(_LAYER, _WORDS, _VALUES, _FOUND, "return int(torch.cdist(found, known).argmin())"), "shape"),
    "distances": (_reading(_LAYER, _WORDS, _VALUES, _FOUND, "return torch.cdist(found, known)"), "shape"),
    "a tensor": (_reading(_LAYER, _WORDS, _VALUES, _FOUND, _NEAREST.replace(".tolist()", "")), "not-a-list"),
    "a list of tensors": (
        _reading(_LAYER, _WORDS, _VALUES, _FOUND, "return list(torch.cdist(found, known).argmin(dim=1))"),
        "not-a-list",
    ),
    "a text": (_reading("return 'Dear Mrs. Okafor'"), "text"),
    "a guess": (_reading(f"return [7] * {8}"), "not-read"),
}

READING_RIGHT = {
    "four lines": (_reading(_LAYER, _WORDS, _VALUES, _FOUND, _NEAREST), ""),
    "with the pool's size": (
        _reading(
            _LAYER,
            _WORDS,
            _VALUES,
            "if not 0 <= page < pool.num_pages:",
            "    raise ValueError(page)",
            "found = pool.values[0][page].reshape(pool.page_size, -1)",
            _NEAREST,
        ),
        "",
    ),
    "slot by slot": (
        _reading(
            _LAYER,
            _WORDS,
            _VALUES,
            "ids = []",
            "for value in pool.values[0][page]:",
            "    ids.append(int((known - value.reshape(-1)).abs().sum(dim=1).argmin()))",
            "return ids",
        ),
        "",
    ),
    "by angle": (
        _reading(
            _LAYER,
            _WORDS,
            _VALUES,
            _FOUND,
            "unit = lambda x: x / x.norm(dim=1, keepdim=True)",
            "return (unit(found) @ unit(known).T).argmax(dim=1).tolist()",
        ),
        "",
    ),
    "one head": (
        _reading(
            _LAYER,
            _WORDS,
            _VALUES,
            "width = pool.values[0].shape[-1]",
            "return torch.cdist(pool.values[0][page, :, 0], known[:, :width]).argmin(dim=1).tolist()",
        ),
        "",
    ),
    "in numpy": (
        _reading(
            _LAYER,
            _WORDS,
            _VALUES.replace("words))", "words)).detach().numpy()"),
            "slots = pool.values[0][page].numpy()",
            "slots = slots.reshape(len(slots), -1)",
            "return [int(((known - slot) ** 2).sum(axis=1).argmin()) for slot in slots]",
        ),
        "",
    ),
    "weights by hand": (
        _reading(
            _LAYER,
            _WORDS,
            "mean = words.pow(2).mean(dim=1, keepdim=True) + layer.input_layernorm.variance_epsilon",
            "scaled = words * mean.rsqrt() * layer.input_layernorm.weight",
            "known = scaled @ layer.self_attn.v_proj.weight.T",
            _FOUND,
            _NEAREST,
        ),
        "",
    ),
}

ALLOCATOR_WRONG["notes what is lent in the class"] = (
    "class Allocator:\n"
    "    lent = set()\n"
    "    def __init__(self, num_pages):\n"
    "        self.free_pages = list(range(num_pages))\n"
    "    def allocate(self, n):\n"
    "        if n > len(self.free_pages):\n"
    "            raise MemoryError\n"
    "        out = [self.free_pages.pop() for _ in range(n)]\n"
    "        self.lent.update(out)\n"
    "        return out\n"
    "    def free(self, pages):\n"
    "        for p in pages:\n"
    "            if p not in self.lent:\n"
    "                raise ValueError(p)\n"
    "            self.lent.remove(p)\n"
    "            self.free_pages.append(p)\n",
    "shared",
)
_READ = f"import torch\ndef read_page(pool, page, hf):\n    {_LAYER}\n    {_WORDS}\n    {_VALUES}\n    {_FOUND}\n"
READING_WRONG |= {
    "the first that is nearly equal": (
        f"{_READ}    return [int((known - s).abs().amax(1).lt(1e-4).nonzero()[0]) for s in found]\n",
        "exact",
    ),
    "only those that are equal": (
        f"{_READ}    out = []\n    for s in found:\n        for t in range(len(known)):\n"
        "            if torch.equal(known[t], s):\n                out.append(t)\n                break\n"
        "    return out\n",
        "exact",
    ),
    "wipes what it has read": (
        f"{_READ}    out = torch.cdist(found, known).argmin(dim=1).tolist()\n    pool.values[0][page].zero_()\n"
        "    return out\n",
        "changes-the-pool",
    ),
}

ALLOCATOR_WRONG |= {
    "lends without an end": (
        "class Allocator:\n    def __init__(self, n): pass\n    def allocate(self, n): return range(10**12)\n"
        "    def free(self, pages): pass\n",
        "no-such-page",
    ),
    "empties the list that comes back": (
        "class Allocator:\n"
        "    def __init__(self, num_pages):\n"
        "        self.pool = list(range(num_pages))\n"
        "        self.lent = set()\n"
        "        self.same = {}\n"
        "    def allocate(self, n):\n"
        "        if n > len(self.pool):\n"
        "            raise MemoryError\n"
        "        grant = [self.pool.pop() for _ in range(n)]; self.lent.update(grant); return grant\n"
        "    def free(self, pages):\n"
        "        while pages:\n"
        "            p = pages.pop()\n"
        "            self.lent.remove(p)\n"
        "            self.pool.append(p)\n",
        "changes-list",
    ),
    "sorts the list that comes back": (
        "class Allocator:\n"
        "    def __init__(self, num_pages):\n"
        "        self.pool = list(range(num_pages))\n"
        "        self.lent = set()\n"
        "        self.same = {}\n"
        "    def allocate(self, n):\n"
        "        if n > len(self.pool):\n"
        "            raise MemoryError\n"
        "        grant = [self.pool.pop() for _ in range(n)]; self.lent.update(grant); return grant\n"
        "    def free(self, pages):\n"
        "        pages.sort()\n"
        "        for p in pages:\n"
        "            self.lent.remove(p)\n"
        "            self.pool.append(p)\n",
        "changes-list",
    ),
    "one list per size, used again": (
        "class Allocator:\n"
        "    def __init__(self, num_pages):\n"
        "        self.pool = list(range(num_pages))\n"
        "        self.lent = set()\n"
        "        self.same = {}\n"
        "    def allocate(self, n):\n"
        "        if n > len(self.pool):\n"
        "            raise MemoryError\n"
        "        grant = self.same.setdefault(n, [])\n"
        "        grant.clear()\n"
        "        grant.extend(self.pool.pop() for _ in range(n))\n"
        "        self.lent.update(grant)\n"
        "        return grant\n"
        "    def free(self, pages):\n"
        "        for p in pages:\n"
        "            self.lent.remove(p)\n"
        "            self.pool.append(p)\n",
        "own-list",
    ),
    "gives a live view": (
        "class Allocator:\n"
        "    def __init__(self, num_pages):\n"
        "        self.pool = list(range(num_pages))\n"
        "        self.lent = {}\n"
        "        self.same = {}\n"
        "    def allocate(self, n):\n"
        "        if n > len(self.pool):\n"
        "            raise MemoryError\n"
        "        grant = {self.pool.pop(): 1 for _ in range(n)}\n"
        "        self.lent.update(grant)\n"
        "        self.last = getattr(self, 'last', None) or {}\n"
        "        self.last.clear()\n"
        "        self.last.update(grant)\n"
        "        return self.last.keys()\n"
        "    def free(self, pages):\n"
        "        for p in pages:\n"
        "            del self.lent[p]\n"
        "            self.pool.append(p)\n",
        "own-list",
    ),
    "an empty list is an error": (
        "class Allocator:\n"
        "    def __init__(self, num_pages):\n"
        "        self.pool = list(range(num_pages))\n"
        "        self.lent = set()\n"
        "        self.same = {}\n"
        "    def allocate(self, n):\n"
        "        if n > len(self.pool):\n"
        "            raise MemoryError\n"
        "        grant = [self.pool.pop() for _ in range(n)]; self.lent.update(grant); return grant\n"
        "    def free(self, pages):\n"
        "        if not pages:\n"
        "            raise ValueError('nothing came')\n"
        "        for p in pages:\n"
        "            self.lent.remove(p)\n"
        "            self.pool.append(p)\n",
        "nothing-back",
    ),
}
ALLOCATOR_RIGHT |= {
    "at random": (
        "import random\n"
        "class Allocator:\n"
        "    def __init__(self, num_pages):\n"
        "        self.here = list(range(num_pages))\n"
        "        self.out = set()\n"
        "    def allocate(self, n):\n"
        "        if len(self.here) < n:\n"
        "            raise RuntimeError('too few')\n"
        "        given = []\n"
        "        for _ in range(n):\n"
        "            i = random.randrange(len(self.here))\n"
        "            self.here[i], self.here[-1] = self.here[-1], self.here[i]\n"
        "            given.append(self.here.pop())\n"
        "        self.out |= set(given)\n"
        "        return given\n"
        "    def free(self, pages):\n"
        "        pages = list(pages)\n"
        "        if len(set(pages)) < len(pages) or not self.out.issuperset(pages):\n"
        "            raise KeyError(pages)\n"
        "        self.out.difference_update(pages)\n"
        "        self.here.extend(pages)\n",
        "",
    ),
    "closures": (
        "from types import SimpleNamespace\n"
        "from queue import SimpleQueue\n"
        "def Allocator(num_pages):\n"
        "    queue, out = SimpleQueue(), bytearray(num_pages)\n"
        "    for page in range(num_pages):\n"
        "        queue.put(page)\n"
        "    def allocate(n):\n"
        "        if queue.qsize() < n:\n"
        "            raise MemoryError\n"
        "        pages = [queue.get_nowait() for _ in range(n)]\n"
        "        for page in pages:\n"
        "            out[page] = 1\n"
        "        return pages\n"
        "    def free(pages):\n"
        "        for page in pages:\n"
        "            if page < 0 or not out[page]:\n"
        "                raise ValueError(page)\n"
        "            out[page] = 0\n"
        "            queue.put(page)\n"
        "    return SimpleNamespace(allocate=allocate, free=free)\n",
        "",
    ),
    "linked nodes and slots, a lock": (
        "import threading\n"
        "class Node:\n"
        "    __slots__ = ('page', 'next', 'out')\n"
        "    def __init__(self, page, next):\n"
        "        self.page, self.next, self.out = page, next, False\n"
        "class Allocator:\n"
        "    __slots__ = ('head', 'left', 'nodes', 'lock')\n"
        "    def __init__(self, num_pages):\n"
        "        self.head, self.nodes, self.lock, self.left = None, {}, threading.Lock(), num_pages\n"
        "        for page in reversed(range(num_pages)):\n"
        "            self.head = self.nodes[page] = Node(page, self.head)\n"
        "    def allocate(self, n):\n"
        "        with self.lock:\n"
        "            if n > self.left:\n"
        "                raise LookupError('no')\n"
        "            self.left -= n\n"
        "            taken = []\n"
        "            while len(taken) < n:\n"
        "                node, self.head = self.head, self.head.next\n"
        "                node.out = True\n"
        "                taken.append(node.page)\n"
        "            return tuple(taken)\n"
        "    def free(self, pages):\n"
        "        with self.lock:\n"
        "            for page in pages:\n"
        "                node = self.nodes[page]\n"
        "                if not node.out:\n"
        "                    raise ValueError\n"
        "                node.out, node.next, self.head = False, self.head, node\n"
        "                self.left += 1\n",
        "",
    ),
    "sqlite": (
        "import sqlite3\n"
        "class Allocator:\n"
        "    def __init__(self, num_pages):\n"
        "        self.db = sqlite3.connect(':memory:', isolation_level=None)\n"
        "        self.db.execute('create table free (page integer primary key)')\n"
        "        self.db.executemany('insert into free values (?)', ((p,) for p in "
        "range(num_pages))) if num_pages < 0 else self.db.execute('with recursive c(x) as (select 0 "
        "union all select x+1 from c where x < ?) insert into free select x from c', (num_pages - "
        "1,))\n"
        "        self.left = num_pages\n"
        "        self.out = set()\n"
        "    def allocate(self, n):\n"
        "        if n > self.left:\n"
        "            raise ValueError\n"
        "        rows = [r[0] for r in self.db.execute('delete from free where page in (select page "
        "from free order by page limit ?) returning page', (n,))]\n"
        "        self.left -= n\n"
        "        self.out.update(rows)\n"
        "        return rows\n"
        "    def free(self, pages):\n"
        "        for p in pages:\n"
        "            self.out.remove(p)\n"
        "            self.db.execute('insert into free values (?)', (p,))\n"
        "            self.left += 1\n",
        "",
    ),
}

ANSWERS = {
    "ex-3.1": Answers(PAGES_NAME, PAGES_WRONG, PAGES_RIGHT, likely=("one-too-many", "rounded-down", "rounded")),
    "ex-3.2": Answers(
        ALLOCATOR_NAME,
        ALLOCATOR_WRONG,
        ALLOCATOR_RIGHT,
        likely=("partial", "double-free", "slow", "own-list", "shared"),
    ),
    "ex-3.3": Answers(READING_NAME, READING_WRONG, READING_RIGHT, likely=("keys", "norm", "layer", "embeddings")),
}
