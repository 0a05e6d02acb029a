"""Exercise 2.1, bytes of one token from a model's configuration: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

from minikv.course.declare import Verdict, ok, wrong

Configuration = Mapping[str, Any]
_Case = tuple[str, int, int]  # a model, a copy of its configuration, bytes of a number

MODELS: tuple[str, ...] = (
    "gpt2",
    "smollm2-135m",
    "qwen3-0.6b",
    "qwen2.5-7b",
    "llama-2-7b",
    "llama-3.1-8b",
    "gpt-oss-20b",
    "qwen3-32b",
    "mixtral-8x7b",
    "llama-3.1-70b",
    "deepseek-v3",
    "kimi-k2",
)  # the twelve of this chapter, by their names in assets/configs


def bytes_per_token(config: Configuration, bytes_per_number: int) -> int:
    """Bytes that one token's keys and values take, in all layers."""
    layers = config.get("num_hidden_layers") or config["n_layer"]
    if config.get("kv_lora_rank"):
        numbers = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        heads = config.get("num_attention_heads") or config["n_head"]
        width = config.get("head_dim") or (config.get("hidden_size") or config["n_embd"]) // heads
        numbers = 2 * width * (config.get("num_key_value_heads") or heads)
    return int(layers * numbers * bytes_per_number)


def twelve() -> dict[str, dict[str, Any]]:
    """The twelve configurations of this chapter, each as it lies on the hub; a copy for each caller."""
    from minikv.course.configs import configurations

    every = configurations()
    return {name: deepcopy(every[name]) for name in MODELS}


def token_costs() -> dict[str, int]:
    """What one token of each of the twelve costs at 16 bit."""
    return {name: bytes_per_token(config, 2) for name, config in twelve().items()}


def minikv_stores(config: Configuration) -> int:
    """Bytes of one token at 16 bit, as minikv's own engine stores it. `KVGeometry` counts."""
    return int(_geometry(config).bytes_per_token())


def minikv_counts(config: Configuration) -> int:
    """The same, but with one row in place of keys and values for models that allow it."""
    return int(_geometry(config).latent_bytes_per_token())


def _geometry(config: Configuration) -> Any:
    from transformers import AutoConfig

    from minikv import KVGeometry

    stated = dict(config)
    kind = stated.pop("model_type")
    if stated.get("architectures") == ["DeepseekV3ForCausalLM"]:
        kind = "deepseek_v3"  # Kimi K2 calls itself by another name
    return KVGeometry.from_config(AutoConfig.for_model(kind, **stated))


def has_latents(config: Configuration) -> bool:
    """Whether one row a layer stands for the keys and values of all heads."""
    return bool(config.get("kv_lora_rank"))


def _first(config: Configuration, *names: str) -> Any:
    return next((config[name] for name in names if config.get(name)), None)


@dataclass(frozen=True)
class _Rule:
    """A way to count, right in everything but what is set here. The order of the fields is that of what is said."""

    layers: str = ""
    tensors: str = ""
    heads: str = ""
    width: str = ""
    latents: str = ""
    numbers: str = ""

    def bytes(self, config: Configuration, each: int) -> float:
        heads = _first(config, "num_attention_heads", "n_head")
        kv_heads = heads if self.heads else _first(config, "num_key_value_heads") or heads
        derived = _first(config, "hidden_size", "n_embd") // heads
        width = derived if self.width else _first(config, "head_dim") or derived
        row = (1 if self.tensors else 2) * kv_heads * width
        if has_latents(config) and self.latents != "latent-as-heads":
            rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
            row = {
                "": rank + rope,
                "latent-doubled": 2 * (rank + rope),
                "latent-halved": (rank + rope) // 2,
                "latent-part": rank,
                "latent-per-head": rank + rope * heads,
                "latent-expanded": heads * (config["qk_nope_head_dim"] + rope + config["v_head_dim"]),
            }[self.latents]
        layers = 1 if self.layers else _first(config, "num_hidden_layers", "n_layer")
        scale = {"": each, "not-bytes": 1, "precision": 2, "bits": each * 8}[self.numbers]
        return float(layers * row * scale)

    def mistakes(self) -> list[str]:
        return [getattr(self, field.name) for field in fields(self) if getattr(self, field.name)]


def _rules() -> list[_Rule]:
    """All combinations, those with the fewest mistakes first."""
    latents = ("", "latent-doubled", "latent-halved", "latent-part", "latent-per-head", "latent-expanded")
    found = [
        _Rule(layers, tensors, heads, width, latent, numbers)
        for layers in ("", "layers")
        for tensors in ("", "one-of-two")
        for heads in ("", "query-heads")
        for width in ("", "width")
        for latent in (*latents, "latent-as-heads")
        for numbers in ("", "not-bytes", "precision", "bits")
    ]
    return sorted(found, key=lambda rule: len(rule.mistakes()))


HINTS: dict[str, tuple[str, ...]] = {
    "query-heads": (
        "Compare the two configurations. In one of them, not every head has keys of its own. Where does it say so?",
        "Several heads can ask with questions of their own and look at the same keys and values. Only what they look "
        "at is stored.",
        "A layer with 4 heads that ask, in pairs, and numbers 8 wide. How many different keys does it keep for one "
        "token? Draw an arrow from each head that asks.",
    ),
    "width": (
        "How wide is one key of this model? Does its configuration leave that to be worked out?",
        "All heads together need not be as wide as the model. Where a configuration says how wide a head is, that "
        "holds, and only where it does not, there is something to work out.",
        "qwen3-0.6b: how wide are its heads if the width of the model is shared out among them? Now look for that "
        "number in its configuration. What do you find instead?",
    ),
    "one-of-two": (
        "What is kept for a token in one layer of SmolLM2? You saw two tensors.",
        "A token is found by its key, and something is taken from its value. Both are needed for every later token.",
        "One layer, one KV head, 4 wide. Write down every number that is kept for one token, and count.",
    ),
    "latent": (
        "How many tensors does this model keep in each layer, and what is in them?",
        "One row stands for keys and values together, and for all heads together. Beside it lies one short piece of a "
        "key that carries the position, and it is not kept twice or once a head either.",
        "Divide the given number by 2 bytes and by the number of layers. Which two numbers of the configuration "
        "add up to what is left?",
    ),
    "layers": (
        "Does a token have one key in the whole model?",
        "Each layer makes keys and values of its own, from what the layer before it made.",
        "SmolLM2 again: one layer keeps 1,536 bytes of a token. What do all of them keep?",
    ),
    "not-bytes": (
        "How many bytes does one number take? Is that in your answer?",
        "A number of 16 bits takes 2 bytes, one of 32 bits takes 4.",
        "A token of 100 numbers: how many bytes at 1, at 2 and at 4 bytes a number?",
    ),
    "bits": (
        "In which unit is the answer asked for?",
        "Memory is counted in bytes. The precision of a number is often said in bits, but your function gets bytes.",
        "A number of 16 bits: how many bytes is it? And a token of 100 such numbers?",
    ),
    "field": (
        "Print the keys of this configuration. What is the same thing called here?",
        "Every model family chose names of its own, and leaves out what it does not need. Ask for a name in a way "
        "that survives its absence, then look under the next one.",
        "Take gpt2 and llama-2-7b, and write each number that you need beside its two names.",
    ),
    "by-heart": (
        "Your twelve answers are right. Which numbers of the configuration went into them?",
        "Every size in the configuration that changes what is stored must change your answer.",
        "Take one configuration, halve its layers in your head, and say what your function gives.",
    ),
}
_ASKED = (
    "Which of the twelve are right, and what do the others have in common?",
    "A token's numbers: layers, times what one layer keeps. Check each of the two by itself.",
    "Divide the given number of this model by 2 bytes and by its layers. What is left is what one layer keeps.",
)
_SAID = {
    "query-heads": "You counted every head that asks.",
    "width": "You worked out how wide a head is, and this model has heads of another width.",
    "one-of-two": "That is one tensor a layer.",
    "latent-doubled": "That is two rows a layer.",
    "latent-halved": "That is half of its row.",
    "latent-part": "A part of what is kept is missing.",
    "latent-per-head": "You kept the piece with the position once for each head.",
    "latent-expanded": "That is what it takes to write out the keys and values of all heads. An engine can do that. "
    "This model was built so that it need not.",
    "latent-as-heads": "You took it for a model that keeps keys and values of every head.",
    "layers": "That is one layer.",
    "not-bytes": "That is a count of numbers.",
    "precision": "Your answer for 4 bytes a number is the same as for 2.",
    "bits": "That is a count of bits.",
}


def judge_bytes(thing: Any) -> Verdict:
    configs = twelve()
    got: dict[_Case, float] = {}
    cases = {(name, copy, each): (config, each) for name, copy, config in _copies(configs) for each in (2, 1, 4)}
    for case, (config, each) in cases.items():
        answer = _answer(thing, case[0], config, each)
        if isinstance(answer, Verdict):
            return answer
        got[case] = answer
    off = [case for case, (config, each) in cases.items() if got[case] != bytes_per_token(config, each)]
    if not off:
        return ok(_where_engines_differ(configs) + _what_it_changes(thing, configs))
    for rule in _rules():
        if all(got[case] == rule.bytes(config, each) for case, (config, each) in cases.items()):
            return _named(rule.mistakes(), configs, got)
    name, copy, each = off[0]
    right = bytes_per_token(*cases[off[0]])
    if copy and each == 2:
        said = f"the twelve are right. With other numbers in {name} you say {got[off[0]]:,.0f}, and it is {right:,}."
        said = f"{said} {_changed(configs[name], cases[off[0]][0])}"
        if right == bytes_per_token(configs[name], 2):
            return wrong("not-stored", f"{said} What is kept has not changed.", *HINTS["width"])
        return wrong("by-heart", said, *HINTS["by-heart"])
    at = "" if each == 2 else f" at {each} byte{'s' if each > 1 else ''} a number"
    said = f"{name}{at}: you say {got[off[0]]:,.0f} bytes, and it is {right:,}."
    amiss = {case[0] for case in off if not case[1] and case[2] == each}
    if amiss and all(has_latents(configs[one]) for one in amiss):
        return wrong("latent-other", said, *HINTS["latent"])
    more = f" {'All' if len(amiss) == len(configs) else len(amiss)} of the twelve are off." if len(amiss) > 1 else ""
    return wrong("other", said + more, *_ASKED)


def _answer(thing: Any, name: str, config: dict[str, Any], each: int) -> float | Verdict:
    """The learner's number for a copy of a configuration, or what there is to say about it."""
    try:
        answer = thing(deepcopy(config), each)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = error.args[0] if error.args else ""
        if isinstance(error, KeyError) and isinstance(what, str) and what not in config:
            return wrong("field", no_such_field(name, config, what), *HINTS["field"])
        if isinstance(error, TypeError) and "NoneType" in str(what):
            said = f"{name}: you calculated with None. A name that you asked for is not in its configuration."
            return wrong("field", said, *HINTS["field"])
        if isinstance(error, AttributeError) and str(what).startswith("'dict' object has no attribute"):
            hint = "How does one ask a dict for what it holds under a name?"
            return wrong("not-an-object", f"{name}: {what}. Here a configuration is a dict.", hint)
        if isinstance(error, ValueError) and "model identifier" in str(what):
            said = f"{name}: transformers knows no model type {config['model_type']!r}."
            hint = "Do you need transformers here? Which of the numbers can you not get from the dict itself?"
            return wrong("not-known-to-transformers", said, hint)
        raise
    if answer is None:
        return wrong("no-return", f"{name}: your function gave nothing back.", "What does it have to return?")
    try:
        number = float(answer)
    except (TypeError, ValueError):
        said = f"{name}: you gave back {_short(answer)}, which is no number."
        return wrong("not-a-number", said, "Give one number back: bytes of one token.")
    return number


_OTHER_NAME = {
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embd": "hidden_size",
    "n_positions": "max_position_embeddings",
    "n_ctx": "max_position_embeddings",
}


def no_such_field(name: str, config: Configuration, field: str) -> str:
    """Say that a configuration has no such field, and what often lies behind it."""
    said = f"{name}: its configuration has no {field!r}."
    if _OTHER_NAME.get(field) in config:
        said += " It has the other name. (A second argument of `get` is worked out in any case, needed or not.)"
    return said


def _named(
    mistakes: list[str], configs: dict[str, dict[str, Any]], got: Mapping[tuple[str, int, int], float]
) -> Verdict:
    """Say what the first mistake did to one of the twelve, and to which it did nothing."""
    kind = mistakes[0]
    hints = HINTS["latent" if kind.startswith("latent") else kind if kind in HINTS else "not-bytes"]
    each = 4 if kind == "precision" else 2
    alone = _Rule(**{field.name: kind for field in fields(_Rule) if kind in _VALUES[field.name]})
    hit = [name for name, config in configs.items() if alone.bytes(config, each) != bytes_per_token(config, each)]
    spared = next(
        (name for name in configs if name not in hit and got[name, 0, 2] == bytes_per_token(configs[name], 2)), ""
    )
    shown = "llama-3.1-8b" if "llama-3.1-8b" in hit else hit[0]
    right = bytes_per_token(configs[shown], each)
    said = f"{shown}{' at 4 bytes a number' if each == 4 else ''}: you say {got[shown, 0, each]:,.0f} bytes"
    said += f", and it is {right:,}{_times(got[shown, 0, each], right)}. {_SAID[kind]}"
    if spared:
        said += f" For {spared} you are right."
    if len(mistakes) > 1:
        said += " (Something else is off too; this first.)"
    return wrong(kind, said, *hints)


_VALUES: dict[str, set[str]] = {
    field.name: {getattr(rule, field.name) for rule in _rules()} - {""} for field in fields(_Rule)
}


def _times(said: float, right: int) -> str:
    if said > right and said % right == 0:
        return f": {said / right:,.0f} times too many"
    if 0 < said < right and right % said == 0:
        return f": {right / said:,.0f} times too few"
    return ""


def _copies(configs: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Each configuration as it is, and then with other numbers; copies keep a number for what they changed."""
    for name, config in configs.items():
        yield name, 0, config
    for name, config in configs.items():
        heads = next(key for key in ("num_attention_heads", "n_head") if key in config)
        width = next(key for key in ("hidden_size", "n_embd") if key in config)
        layers = next(key for key in ("num_hidden_layers", "n_layer") if key in config)
        less = config[layers] // 2
        yield name, 1, {**config, layers: less, **_cut(config, less), "vocab_size": 1000}
        yield name, 2, {**config, width: 2 * config[width]}
        more: dict[str, Any] = {width: 2 * config[width], heads: 2 * config[heads]}
        if has_latents(config):
            more["num_key_value_heads"] = more[heads]
        yield name, 3, {**config, **more}
        if has_latents(config):
            yield name, 4, {**config, "kv_lora_rank": 384, "qk_rope_head_dim": 48}
        elif config.get("num_key_value_heads"):
            yield name, 4, {**config, "num_key_value_heads": -(-config["num_key_value_heads"] // 2)}
        if config.get("head_dim"):
            yield name, 5, {**config, "head_dim": 96}


def _cut(config: Configuration, layers: int) -> dict[str, Any]:
    """Lists with one entry a layer, shortened with the layers."""
    return {"layer_types": config["layer_types"][:layers]} if config.get("layer_types") else {}


def _changed(before: Configuration, after: Configuration) -> str:
    """What is different in a copy, in words."""
    what = [f"{key} {after[key]}" for key in after if before.get(key) != after[key] and isinstance(after[key], int)]
    return f"(Changed: {', '.join(key for key in what if not key.startswith('vocab'))}.)"


def _where_engines_differ(configs: Mapping[str, dict[str, Any]]) -> str:
    """Compare with minikv's own counting."""
    stores = {name: minikv_stores(config) for name, config in configs.items()}
    other = [name for name in configs if stores[name] != bytes_per_token(configs[name], 2)]
    if not other:
        return ""
    name = other[0]
    more = stores[name] / bytes_per_token(configs[name], 2)
    return (
        f"Bytes of one token. minikv's own engine stores exactly this for {len(configs) - len(other)} of the twelve. "
        f"Engines differ for the others: for {name} minikv writes out the keys and values of all heads, "
        f"{stores[name]:,} bytes, {more:.0f} times as much. The model allows one row. The engine must use it."
    )


def _what_it_changes(thing: Any, configs: Mapping[str, dict[str, Any]]) -> str:
    """A remark on a function that writes into what it is given."""
    for config in configs.values():
        given = deepcopy(config)
        thing(given, 2)
        if given != config:
            return " Your function changes the configuration that it is given. Whoever reads it next reads yours."
    return ""


def _short(answer: object) -> str:
    text = " ".join(repr(answer).split())
    return text if len(text) <= 60 else f"{text[:60]}..."
