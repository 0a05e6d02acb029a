"""Answers to the exercises of chapter 02: the wrong ones with the kind of verdict that each must get, and right ones.

All are sources, as a learner would write them in a cell. A right one may name words that its `[ok]` must say.
"""

from __future__ import annotations

from answers import Answers

_LAYERS = "config.get('num_hidden_layers') or config['n_layer']"
_HEADS = "config.get('num_attention_heads') or config['n_head']"
_WIDTH = "config.get('head_dim') or (config.get('hidden_size') or config['n_embd']) // heads"
_KV = "config.get('num_key_value_heads') or heads"
_LATENT = "config['kv_lora_rank'] + config['qk_rope_head_dim']"


def _bytes(
    layers: str = _LAYERS,
    heads: str = _HEADS,
    width: str = _WIDTH,
    kv: str = _KV,
    row: str = "2 * width * kv",
    latent: str = _LATENT,
    result: str = "layers * row * bytes_per_number",
) -> str:
    return (
        "def bytes_per_token(config, bytes_per_number):\n"
        f"    layers = {layers}\n    heads = {heads}\n    width = {width}\n    kv = {kv}\n    row = {row}\n"
        f"    if 'kv_lora_rank' in config:\n        row = {latent}\n"
        f"    return {result}\n"
    )


BYTES_WRONG = {
    "query heads": (_bytes(kv="heads"), "query-heads"),
    "head width from hidden size": (
        _bytes(width="(config.get('hidden_size') or config['n_embd']) // heads"),
        "width",
    ),
    "keys only": (_bytes(row="width * kv"), "one-of-two"),
    "latents twice": (_bytes(latent=f"2 * ({_LATENT})"), "latent-doubled"),
    "half a latent": (_bytes(latent=f"({_LATENT}) // 2"), "latent-halved"),
    "latent without the position": (_bytes(latent="config['kv_lora_rank']"), "latent-part"),
    "the piece with the position once a head": (
        _bytes(latent="config['kv_lora_rank'] + config['qk_rope_head_dim'] * heads"),
        "latent-per-head",
    ),
    "latents written out": (
        _bytes(latent="kv * (config['qk_nope_head_dim'] + config['qk_rope_head_dim'] + config['v_head_dim'])"),
        "latent-expanded",
    ),
    "latent and the width of a value": (_bytes(latent=f"{_LATENT} + config['v_head_dim']"), "latent-other"),
    "the latent of the queries": (
        _bytes(latent="config['q_lora_rank'] + config['qk_rope_head_dim']"),
        "latent-other",
    ),
    "no latents at all": (_bytes(latent="row"), "latent-as-heads"),
    "one layer": (_bytes(layers="1"), "layers"),
    "numbers, not bytes": (_bytes(result="layers * row"), "not-bytes"),
    "always 16 bit": (_bytes(result="layers * row * 2"), "precision"),
    "bits": (_bytes(result="layers * row * bytes_per_number * 8"), "bits"),
    "query heads and no latents": (_bytes(kv="heads", latent="row"), "query-heads"),
    "everything as in GPT-2": (
        _bytes(kv="heads", width="(config.get('hidden_size') or config['n_embd']) // heads", latent="row"),
        "query-heads",
    ),
    "width and latents": (
        _bytes(width="(config.get('hidden_size') or config['n_embd']) // heads", latent="row"),
        "width",
    ),
    "GPT-2 has other names": (_bytes(layers="config['num_hidden_layers']"), "field"),
    "asks for both names": (_bytes(layers="config.get('num_hidden_layers', config['n_layer'])"), "field"),
    "None for a width": (_bytes(width="config.get('head_dim')"), "field"),
    "only latents": (_bytes(row="None", latent=_LATENT), "field"),
    "a table of answers": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    known = {('gpt2', 12): 18432, ('llama', 30): 11520, ('qwen3', 28): 57344, ('qwen2', 28): 28672,\n"
        "             ('llama', 80): 163840, ('gpt_oss', 24): 24576, ('qwen3', 64): 131072, ('mixtral', 32): 65536,\n"
        "             ('deepseek_v3', 61): 35136, ('kimi_k2', 61): 35136}\n"
        "    key = config['model_type'], config.get('num_hidden_layers') or config['n_layer']\n"
        "    if key == ('llama', 32):\n"
        "        return bytes_per_number * (262144 if config['max_position_embeddings'] == 4096 else 65536)\n"
        "    return bytes_per_number * known.get(key, 1)\n",
        "by-heart",
    ),
    "latents known by heart": (_bytes(latent="576"), "by-heart"),
    "no head width for one family": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    kind = config['model_type']\n"
        "    if kind == 'gpt2':\n"
        "        return 2 * config['n_layer'] * config['n_embd'] * bytes_per_number\n"
        "    layers = config['num_hidden_layers']\n"
        "    if kind in ('deepseek_v3', 'kimi_k2'):\n"
        "        return layers * (config['kv_lora_rank'] + config['qk_rope_head_dim']) * bytes_per_number\n"
        "    if kind in ('qwen3', 'gpt_oss'):\n"
        "        return layers * 2 * config['num_key_value_heads'] * config['head_dim'] * bytes_per_number\n"
        "    width = config['hidden_size'] // config['num_attention_heads']\n"
        "    return layers * 2 * config['num_key_value_heads'] * width * bytes_per_number\n",
        "not-stored",
    ),
    "one layer and no latents": (_bytes(layers="1", latent="row"), "layers"),
    "the piece of a key without the position": (
        _bytes(latent="config['kv_lora_rank'] + config['qk_nope_head_dim']"),
        "latent-other",
    ),
    "asks transformers": (
        "from transformers import AutoConfig\n\n"
        "def bytes_per_token(config, bytes_per_number):\n"
        "    c = AutoConfig.for_model(**config)\n"
        "    if hasattr(c, 'kv_lora_rank'):\n"
        "        return c.num_hidden_layers * (c.kv_lora_rank + c.qk_rope_head_dim) * bytes_per_number\n"
        "    heads = c.num_attention_heads\n"
        "    width = getattr(c, 'head_dim', None) or c.hidden_size // heads\n"
        "    return 2 * c.num_hidden_layers * getattr(c, 'num_key_value_heads', heads) * width * bytes_per_number\n",
        "not-known-to-transformers",
    ),
    "a dict taken for an object": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * bytes_per_number\n",
        "not-an-object",
    ),
    "prints": (
        _bytes(result="print(layers * row * bytes_per_number)"),
        "no-return",
    ),
    "with commas": (_bytes(result="f'{layers * row * bytes_per_number:,}'"), "not-a-number"),
    "one KV head where none is stated": (_bytes(kv="config.get('num_key_value_heads') or 1"), "other"),
    "vocabulary": (_bytes(result="layers * row * bytes_per_number + config['vocab_size']"), "other"),
    "rounded to kilobytes": (_bytes(result="layers * row * bytes_per_number // 1000 * 1000"), "other"),
    "nothing": ("def bytes_per_token(config, bytes_per_number):\n    layers = 1\n", "no-return"),
    "a text": ("def bytes_per_token(config, bytes_per_number):\n    return '36,864 bytes'\n", "not-a-number"),
    "a pair": (_bytes(result="layers, row"), "not-a-number"),
}

BYTES_RIGHT = {
    "as in the solution": (_bytes(), "10 of the twelve"),
    "as a float": (_bytes(result="float(layers * row * bytes_per_number)"), ""),
    "families one by one": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    kind = config['model_type']\n"
        "    if kind == 'gpt2':\n"
        "        return 2 * config['n_layer'] * config['n_embd'] * bytes_per_number\n"
        "    layers = config['num_hidden_layers']\n"
        "    if kind in ('deepseek_v3', 'kimi_k2'):\n"
        "        return layers * (config['kv_lora_rank'] + config['qk_rope_head_dim']) * bytes_per_number\n"
        "    width = config['head_dim'] if 'head_dim' in config else "
        "config['hidden_size'] // config['num_attention_heads']\n"
        "    return layers * 2 * config['num_key_value_heads'] * width * bytes_per_number\n",
        "",
    ),
    "first name that is there": (
        "def first(config, *names):\n"
        "    for name in names:\n"
        "        if config.get(name) is not None:\n"
        "            return config[name]\n\n"
        "def bytes_per_token(config, bytes_per_number):\n"
        "    layers = first(config, 'n_layer', 'num_hidden_layers')\n"
        "    rank = first(config, 'kv_lora_rank')\n"
        "    if rank is not None:\n"
        "        return layers * bytes_per_number * (rank + config['qk_rope_head_dim'])\n"
        "    heads = first(config, 'n_head', 'num_attention_heads')\n"
        "    width = first(config, 'head_dim') or first(config, 'n_embd', 'hidden_size') / heads\n"
        "    return layers * bytes_per_number * 2 * width * (first(config, 'num_key_value_heads') or heads)\n",
        "",
    ),
    "layer by layer": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    total = 0\n"
        "    for _ in range(config.get('num_hidden_layers', config.get('n_layer'))):\n"
        "        if 'kv_lora_rank' in config:\n"
        "            total += config['kv_lora_rank'] + config['qk_rope_head_dim']\n"
        "            continue\n"
        "        heads = config.get('num_attention_heads', config.get('n_head'))\n"
        "        hidden = config.get('hidden_size', config.get('n_embd'))\n"
        "        for _tensor in ('keys', 'values'):\n"
        "            total += config.get('num_key_value_heads', heads) * config.get('head_dim', hidden // heads)\n"
        "    return total * bytes_per_number\n",
        "",
    ),
    "names changed first, and it writes into what it got": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    for old, new in (('n_layer', 'num_hidden_layers'), ('n_head', 'num_attention_heads'), "
        "('n_embd', 'hidden_size')):\n"
        "        if old in config:\n"
        "            config[new] = config.pop(old)\n"
        "    config.setdefault('num_key_value_heads', config['num_attention_heads'])\n"
        "    config.setdefault('head_dim', config['hidden_size'] // config['num_attention_heads'])\n"
        "    try:\n"
        "        one = config['kv_lora_rank'] + config['qk_rope_head_dim']\n"
        "    except KeyError:\n"
        "        one = config['num_key_value_heads'] * config['head_dim'] * 2\n"
        "    return one * config['num_hidden_layers'] * bytes_per_number\n",
        "Your function changes the configuration",
    ),
    "asks minikv": (
        "import torch\nfrom transformers import AutoConfig\nfrom minikv import KVGeometry\n\n"
        "def bytes_per_token(config, bytes_per_number):\n"
        "    if config['model_type'] == 'kimi_k2':\n"
        "        config['model_type'] = 'deepseek_v3'\n"
        "    geometry = KVGeometry.from_config(AutoConfig.for_model(**config))\n"
        "    return geometry.latent_bytes_per_token(torch.int8) * bytes_per_number\n",
        "",
    ),
    "patterns": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    match config:\n"
        "        case {'kv_lora_rank': rank, 'qk_rope_head_dim': rope, 'num_hidden_layers': layers}:\n"
        "            row = rank + rope\n"
        "        case {'n_layer': layers, 'n_embd': width}:\n"
        "            row = 2 * width\n"
        "        case {'num_hidden_layers': layers, 'num_key_value_heads': kv, 'head_dim': width}:\n"
        "            row = 2 * kv * width\n"
        "        case {'num_hidden_layers': layers, 'num_key_value_heads': kv, 'hidden_size': all_of_it,\n"
        "              'num_attention_heads': heads}:\n"
        "            row = 2 * kv * all_of_it // heads\n"
        "    return layers * row * bytes_per_number\n",
        "",
    ),
    "numpy": (
        "import numpy as np\n\n"
        "def bytes_per_token(config, bytes_per_number):\n"
        "    get = lambda *names: next((config[n] for n in names if n in config), None)\n"
        "    layers = get('num_hidden_layers', 'n_layer')\n"
        "    if get('kv_lora_rank'):\n"
        "        kept = np.full(layers, get('kv_lora_rank') + get('qk_rope_head_dim'))\n"
        "    else:\n"
        "        heads = get('num_attention_heads', 'n_head')\n"
        "        width = get('head_dim') or get('hidden_size', 'n_embd') // heads\n"
        "        kept = np.full(layers, 2 * (get('num_key_value_heads') or heads) * width)\n"
        "    return kept.sum() * bytes_per_number\n",
        "",
    ),
}

_TOKEN = (
    "def token_bytes(config):\n"
    f"    layers = {_LAYERS}\n    heads = {_HEADS}\n    width = {_WIDTH}\n"
    f"    row = {_LATENT} if 'kv_lora_rank' in config else 2 * width * ({_KV})\n"
    "    return layers * row * 2\n\n"
)


def _gap(
    left: str = "max(0, card * 2**30 - params * 2)",
    fits: str = "left // token // piece * piece",
    result: str = "fits, context - fits",
    context: str = "config.get('max_position_embeddings') or config['n_positions']",
) -> str:
    return (
        f"{_TOKEN}def gap(config, params, card, piece):\n    context = {context}\n    token = token_bytes(config)\n"
        f"    left = {left}\n    fits = {fits}\n    return {result}\n"
    )


GAP_WRONG = {
    "gigabytes": (_gap(left="max(0, card * 10**9 - params * 2)"), "gb"),
    "the whole card": (_gap(left="card * 2**30"), "no-weights"),
    "a byte for each weight": (_gap(left="max(0, card * 2**30 - params)"), "weights-in-bytes"),
    "four bytes for each weight": (_gap(left="max(0, card * 2**30 - params * 4)"), "weights-at-32-bit"),
    "half a piece": (_gap(fits="left // token"), "part-of-a-piece"),
    "rounded up": (_gap(fits="-(-left // (token * piece)) * piece"), "rounded-up"),
    "rounded": (_gap(fits="round(left / token / piece) * piece"), "rounded"),
    "pieces": (_gap(fits="left // (token * piece)"), "in-pieces"),
    "less than nothing": (_gap(left="card * 2**30 - params * 2"), "below-zero"),
    "one byte for each stored number": (_gap(fits="left // (token // 2) // piece * piece"), "per-byte"),
    "four bytes, as in the lesson": (_gap(fits="left // (token * 2) // piece * piece"), "token-at-32-bit"),
    "bits for bytes": (
        _gap(left="max(0, card * 2**30 - params * 16)", fits="left // (token * 8) // piece * piece"),
        "bits",
    ),
    "always pieces of 16": (_gap(fits="left // token // 16 * 16"), "sixteens"),
    "prints": (_gap(result="print(fits, context - fits)"), "shape"),
    "a dict": (_gap(result="{'fits': fits, 'missing': context - fits}"), "shape"),
    "whole pieces are missing": (_gap(result="fits, (context - fits) // piece * piece"), "other-gap"),
    "gigabytes and half a piece": (
        _gap(left="max(0, card * 10**9 - params * 2)", fits="left // token"),
        "gb",
    ),
    "the context": (_gap(fits="context"), "context-as-room"),
    "no more than the context": (_gap(fits="min(context, left // token // piece * piece)"), "cut-at-context"),
    "turned round": (_gap(result="fits, fits - context"), "turned-round"),
    "no sign": (_gap(result="fits, abs(context - fits)"), "no-sign"),
    "never below zero": (_gap(result="fits, max(0, context - fits)"), "cut-at-zero"),
    "the gap in pieces": (_gap(result="fits, (context - fits) / piece"), "not-whole"),
    "the context in place of the gap": (_gap(result="fits, context"), "other-gap"),
    "the gap first": (_gap(result="context - fits, fits"), "shape"),
    "one number": (_gap(result="context - fits"), "shape"),
    "nothing": (_gap(result="None"), "shape"),
    "parts of tokens": (_gap(fits="left / token"), "not-whole"),
    "GPT-2 has another name": (_gap(context="config['max_position_embeddings']"), "field"),
    "asks for both names": (_gap(context="config.get('max_position_embeddings', config['n_positions'])"), "field"),
    "one piece kept back": (_gap(fits="max(0, left // token // piece - 1) * piece"), "other"),
}

GAP_RIGHT = {
    "step by step": (_gap(), ""),
    "pieces of bytes": (_gap(fits="left // (token * piece) * piece"), ""),
    "through floats": (
        "import math\n"
        + _gap(left="max(0.0, card * 1024**3 - 2.0 * params)", fits="math.floor(left / (token * piece)) * piece"),
        "",
    ),
    "whole floats": (_gap(left="max(0, card * 2.0**30 - params * 2)"), ""),
    "cut at the end": (
        _gap(left="(card << 30) - 2 * params", fits="max(0, left // token - left // token % piece)"),
        "",
    ),
    "a list": (_gap(result="[fits, context - fits]"), ""),
    "with an if": (
        f"{_TOKEN}def gap(config, params, card, piece):\n"
        "    context = config['n_ctx'] if 'n_ctx' in config else config['max_position_embeddings']\n"
        "    room = card * 1024 * 1024 * 1024\n"
        "    if room <= params * 2:\n"
        "        return 0, context\n"
        "    tokens = (room - params * 2) // token_bytes(config)\n"
        "    tokens -= tokens % piece\n"
        "    return tokens, context - tokens\n",
        "",
    ),
    "with the reference of 2.1": (
        "from minikv.course.chapters.ex_2_1 import bytes_per_token\n\n"
        "def gap(config, params, card, piece):\n"
        "    each = bytes_per_token(config, 2)\n"
        "    fits = max(0, int((card * 2**30 - 2 * params) / each / piece)) * piece\n"
        "    return fits, (config.get('max_position_embeddings') or config.get('n_positions')) - fits\n",
        "",
    ),
    "numpy": (
        "import numpy as np\n"
        + _gap(left="np.maximum(card * 2**30 - params * 2, 0)", fits="(left // token) - (left // token) % piece"),
        "",
    ),
    "torch": (
        "import torch\n" + _gap(result="tuple(torch.tensor([fits, context - fits]))"),
        "",
    ),
}

BYTES_WRONG |= {
    "the larger width": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    layers = config.get('num_hidden_layers') or config['n_layer']\n"
        "    heads = config.get('num_attention_heads') or config['n_head']\n"
        "    hidden = config.get('hidden_size') or config['n_embd']\n"
        "    if 'kv_lora_rank' in config:\n"
        "        return layers * (config['kv_lora_rank'] + config['qk_rope_head_dim']) * "
        "bytes_per_number\n"
        "    width = max(config.get('head_dim') or 0, hidden // heads)\n"
        "    kv = config.get('num_key_value_heads') or heads\n"
        "    return layers * 2 * kv * width * bytes_per_number\n",
        "not-stored",
    ),
    "two bytes at least": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    layers = config.get('num_hidden_layers') or config['n_layer']\n"
        "    heads = config.get('num_attention_heads') or config['n_head']\n"
        "    hidden = config.get('hidden_size') or config['n_embd']\n"
        "    if 'kv_lora_rank' in config:\n"
        "        return layers * (config['kv_lora_rank'] + config['qk_rope_head_dim']) * "
        "bytes_per_number\n"
        "    width = config.get('head_dim') or hidden // heads\n"
        "    kv = config.get('num_key_value_heads') or heads\n"
        "    return layers * 2 * kv * width * max(2, bytes_per_number)\n",
        "other",
    ),
    "sliding layers do not count": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    layers = config.get('num_hidden_layers') or config['n_layer']\n"
        "    heads = config.get('num_attention_heads') or config['n_head']\n"
        "    hidden = config.get('hidden_size') or config['n_embd']\n"
        "    if 'kv_lora_rank' in config:\n"
        "        return layers * (config['kv_lora_rank'] + config['qk_rope_head_dim']) * "
        "bytes_per_number\n"
        "    width = config.get('head_dim') or hidden // heads\n"
        "    kv = config.get('num_key_value_heads') or heads\n"
        "    return sum(t == 'full_attention' for t in config.get('layer_types', ['full_attention'] "
        "* layers)) * 2 * kv * width * bytes_per_number\n",
        "other",
    ),
    "dense layers only": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    layers = config.get('num_hidden_layers') or config['n_layer']\n"
        "    heads = config.get('num_attention_heads') or config['n_head']\n"
        "    hidden = config.get('hidden_size') or config['n_embd']\n"
        "    if 'kv_lora_rank' in config:\n"
        "        return (layers - config.get('first_k_dense_replace', 0)) * (config['kv_lora_rank'] "
        "+ config['qk_rope_head_dim']) * bytes_per_number\n"
        "    width = config.get('head_dim') or hidden // heads\n"
        "    kv = config.get('num_key_value_heads') or heads\n"
        "    return layers * 2 * kv * width * bytes_per_number\n",
        "latent-other",
    ),
    "position piece is 64": (
        "def bytes_per_token(config, bytes_per_number):\n"
        "    layers = config.get('num_hidden_layers') or config['n_layer']\n"
        "    heads = config.get('num_attention_heads') or config['n_head']\n"
        "    hidden = config.get('hidden_size') or config['n_embd']\n"
        "    if 'kv_lora_rank' in config:\n"
        "        return layers * (config['kv_lora_rank'] + 64) * bytes_per_number\n"
        "    width = config.get('head_dim') or hidden // heads\n"
        "    kv = config.get('num_key_value_heads') or heads\n"
        "    return layers * 2 * kv * width * bytes_per_number\n",
        "by-heart",
    ),
}
BYTES_RIGHT |= {
    "an object of its own": (
        "from types import SimpleNamespace\n"
        "def bytes_per_token(config, bytes_per_number):\n"
        "    c = SimpleNamespace(**config)\n"
        "    layers = getattr(c, 'num_hidden_layers', None) or c.n_layer\n"
        "    if hasattr(c, 'kv_lora_rank'):\n"
        "        return sum([c.kv_lora_rank, c.qk_rope_head_dim]) * layers * bytes_per_number\n"
        "    heads = getattr(c, 'num_attention_heads', None) or c.n_head\n"
        "    kv = getattr(c, 'num_key_value_heads', heads)\n"
        "    width = getattr(c, 'head_dim', None) or (getattr(c, 'hidden_size', None) or c.n_embd) "
        "// heads\n"
        "    return layers * kv * width * 2 * bytes_per_number\n",
        "",
    ),
    "tensors that take no memory": (
        "import torch\n"
        "def bytes_per_token(config, bytes_per_number):\n"
        "    kind = {1: torch.int8, 2: torch.float16, 4: torch.float32}[bytes_per_number]\n"
        "    get = lambda *names: next((config[n] for n in names if config.get(n)), None)\n"
        "    if get('kv_lora_rank'):\n"
        "        shapes = [(config['kv_lora_rank'],), (config['qk_rope_head_dim'],)]\n"
        "    else:\n"
        "        heads = get('n_head', 'num_attention_heads')\n"
        "        shapes = [(get('num_key_value_heads') or heads, get('head_dim') or get('n_embd', "
        "'hidden_size') // heads)] * 2\n"
        "    made = [torch.empty(s, dtype=kind, device='meta') for s in shapes for _ in "
        "range(get('n_layer', 'num_hidden_layers'))]\n"
        "    return sum(t.numel() * t.element_size() for t in made)\n",
        "",
    ),
    "a fraction": (
        "from fractions import Fraction\n"
        "from collections import ChainMap\n"
        "def bytes_per_token(config, bytes_per_number):\n"
        "    names = {'num_hidden_layers': 'n_layer', 'num_attention_heads': 'n_head', "
        "'hidden_size': 'n_embd'}\n"
        "    c = ChainMap(config, {new: config[old] for new, old in names.items() if old in config})\n"
        "    per = Fraction(bytes_per_number * c['num_hidden_layers'])\n"
        "    try:\n"
        "        return per * (c['kv_lora_rank'] + c['qk_rope_head_dim'])\n"
        "    except KeyError:\n"
        "        share = Fraction(c.get('num_key_value_heads', c['num_attention_heads']), "
        "c['num_attention_heads'])\n"
        "        width = c.get('head_dim')\n"
        "        return 2 * per * (share * c['hidden_size'] if width is None else "
        "c['num_key_value_heads'] * width)\n",
        "",
    ),
}

ANSWERS = {
    "ex-2.1": Answers(
        "bytes_per_token",
        BYTES_WRONG,
        BYTES_RIGHT,
        likely=("query-heads", "width", "one-of-two", "latent-doubled", "latent-as-heads", "layers", "field"),
    ),
    "ex-2.2": Answers(
        "gap",
        GAP_WRONG,
        GAP_RIGHT,
        likely=("gb", "no-weights", "part-of-a-piece", "context-as-room", "cut-at-context", "below-zero"),
    ),
}
