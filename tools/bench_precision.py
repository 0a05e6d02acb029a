"""What float32, packed linear layers and bfloat16 do to the speed of smollm2 on this CPU, measured in one run.

    OMP_NUM_THREADS=2 python tools/bench_precision.py [--json PATH] [--rounds 2]

Decode: tokens a second while 1, 8 or 32 requests each get one token a step, by the median step. Prefill: prompt
tokens a second of two prompts of 256 tokens. The ways take turns, so that a busy machine slows all of them; each
figure is the median of the rounds. The last column is what reading all weights once a step would allow at best,
with 1 request, by the speed at which torch sums up as many bytes. Takes about a minute a round on two idle cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch

from minikv import Engine, SamplingParams, load_model
from minikv.models.adapter import BoundModel
from minikv.trace import Trace

WAYS = {
    "float32": (torch.float32, False),
    "float32 packed": (torch.float32, True),
    "bfloat16": (torch.bfloat16, False),
    "bfloat16 packed": (torch.bfloat16, True),
}
REQUESTS = (1, 8, 32)
PROMPT, STEPS = 16, 8
LONG_PROMPT, LONG_PROMPTS = 256, 2


def engine(model: BoundModel) -> Engine:
    return Engine(model, num_pages=320, ledger=False, trace=Trace(enabled=False))


def decode_speed(model: BoundModel, requests: int) -> float:
    """Tokens a second of the steps in which everybody gets one: the later half of all steps."""
    server = engine(model)
    params = SamplingParams(max_tokens=2 * STEPS, ignore_eos=True)
    numbers = [server.submit([100 + i, *range(500, 499 + PROMPT)], params) for i in range(requests)]
    times = []
    while not all(server.requests[number].finished for number in numbers):
        start = time.perf_counter()
        server.step()
        times.append(time.perf_counter() - start)
    return requests / statistics.median(times[-STEPS:])


def prefill_speed(model: BoundModel) -> float:
    """Prompt tokens a second."""
    server = engine(model)
    prompts = [[100 + i, *range(500, 499 + LONG_PROMPT)] for i in range(LONG_PROMPTS)]
    start = time.perf_counter()
    server.generate(prompts, SamplingParams(max_tokens=1, ignore_eos=True))
    return LONG_PROMPT * LONG_PROMPTS / (time.perf_counter() - start)


def read_speed(num_bytes: int) -> float:
    """Bytes a second that torch reads from memory, the best of five times."""
    numbers = torch.ones(num_bytes // 4)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        numbers.sum()
        times.append(time.perf_counter() - start)
    return num_bytes / min(times)


def measure(rounds: int) -> dict[str, dict[str, float]]:
    models = {way: load_model("smollm2", dtype=dtype, packed=packed) for way, (dtype, packed) in WAYS.items()}
    weights = sum(weight.numel() * 4 for weight in models["float32"].hf.parameters())
    seen: dict[str, dict[str, list[float]]] = {way: {} for way in WAYS}
    for _ in range(rounds):
        for column in [f"decode {n}" for n in REQUESTS] + ["prefill"]:
            for way, model in models.items():
                speed = prefill_speed(model) if column == "prefill" else decode_speed(model, int(column.split()[1]))
                seen[way].setdefault(column, []).append(speed)
                print(f"{column} of {way}: {speed:.1f} tokens/s", file=sys.stderr, flush=True)
    result = {way: {name: statistics.median(each) for name, each in columns.items()} for way, columns in seen.items()}
    limit = read_speed(weights) / weights
    for way, (dtype, _) in WAYS.items():
        result[way]["read limit"] = limit * 4 / dtype.itemsize
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args()
    result = measure(chosen.rounds)
    columns = list(result["float32"])
    print(f"tokens/s (times float32); torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'':16}" + "".join(f"{column:>18}" for column in columns))
    for way, speeds in result.items():
        cells = [f"{speeds[name]:.1f} ({speeds[name] / result['float32'][name]:.2f})" for name in columns]
        print(f"{way:16}" + "".join(f"{cell:>18}" for cell in cells))
    if chosen.json:
        about = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rounds": chosen.rounds}
        chosen.json.write_text(json.dumps({**about, "tokens_per_second": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
