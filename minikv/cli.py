"""The `minikv` command. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from minikv import __version__
from minikv.errors import ConfigError, MinikvError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, 1 for an error that was explained, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a letter shows another
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MinikvError, OSError) as error:
        print(f"minikv: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("minikv: stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="minikv", description="A small LLM engine, and the course that builds it.")
    parser.add_argument("--version", action="version", version=f"minikv {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    incident = _command(commands, "incident", "see the leak, then the refusal that should have been")
    incident.add_argument(
        "--scale",
        choices=("article", "pocket", "production"),
        default="article",
        help="article: a model that speaks (default); pocket: random weights, seconds; "
        "production: random weights, the sizes of the real incident, about a minute",
    )
    incident.add_argument("--prompt-tokens", type=_positive, metavar="N", help="length of the refused request")
    incident.add_argument(
        "--matrix", action="store_true", help="instead: all 256 combinations of guards against six scenarios, a minute"
    )
    incident.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
    incident.set_defaults(run=_incident)

    prepare = _command(commands, "prepare", "convert the default weights once")
    prepare.set_defaults(run=_prepare)

    course = _command(commands, "course", "your own copy of the notebooks")
    actions = course.add_subparsers(required=True, metavar="ACTION")
    start = _command(actions, "start", "make or refresh the copy; what you changed is never overwritten")
    start.add_argument(
        "target", nargs="?", help="folder for the copy (default: the copy around this folder, or my_course)"
    )
    start.add_argument("--quiet", action="store_true", help="say nothing unless something is wrong")
    start.set_defaults(run=_course_start)
    status = _command(actions, "status", "how far you are: predictions made, checks that said [ok]")
    status.set_defaults(run=_course_status)
    reset = _command(actions, "reset", "begin an exercise again; what you had is put aside")
    reset.add_argument("exercise", help='such as "ex-3.2"')
    reset.add_argument("--target", help="your copy (default: the one around this folder, or my_course)")
    reset.set_defaults(run=_course_reset)

    mine = _command(commands, "mine", "a sentence from an engine of your own parts")
    mine.add_argument("prompt", nargs="?", help="how the sentence begins")
    mine.add_argument("--model", default="smollm2", help="smollm2 (default), tiny-random, a folder or a hub id")
    mine.set_defaults(run=_mine)

    kit = _command(commands, "kit", "the whole course in one folder, to be installed where there is no network")
    kit.add_argument("folder", help="a new or empty folder, such as one on a stick")
    kit.add_argument(
        "--torch-index",
        metavar="URL",
        default=os.environ.get("MINIKV_TORCH_INDEX") or None,
        help="package index for torch alone; the README names the one for CPUs (or set MINIKV_TORCH_INDEX)",
    )
    kit.add_argument("--quiet", action="store_true", help="say nothing unless something is wrong")
    kit.set_defaults(run=_kit)
    return parser


def _command(commands: Any, name: str, about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}."
    )
    return parser


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def _incident(options: argparse.Namespace) -> int:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # several threads wait for each other on a busy machine
    if options.matrix:
        return _matrix(options)
    from minikv.incident.replay import replay
    from minikv.incident.scales import SCALES
    from minikv.incident.story import Progress, as_json, tell

    with Progress() as say:
        report = replay(SCALES[options.scale], attack_tokens=options.prompt_tokens, say=say)
    if options.json:
        print(json.dumps(as_json(report)))
    else:
        tell(report)
    return 0


def _matrix(options: argparse.Namespace) -> int:
    if options.prompt_tokens or options.scale not in ("article", "pocket"):
        raise ConfigError("--matrix runs at pocket scale with its own prompts; leave --scale and --prompt-tokens out")
    from minikv.incident.matrix_story import run_with_progress, tell

    matrix = run_with_progress()
    if options.json:
        print(json.dumps(matrix.as_json()))
    else:
        tell(matrix)
    return 0


def _prepare(_options: argparse.Namespace) -> int:
    from minikv.models.weights import prepare

    print(f"default weights: {prepare()}")
    return 0


def _course_start(options: argparse.Namespace) -> int:
    from minikv.course.copy import start

    start(options.target, quiet=options.quiet)
    return 0


def _course_status(_options: argparse.Namespace) -> int:
    from minikv.course.status import status

    status()
    return 0


def _course_reset(options: argparse.Namespace) -> int:
    from minikv.course.reset import reset

    print("\n".join(reset(options.exercise, options.target)))
    return 0


def _mine(options: argparse.Namespace) -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from minikv.course.mine import mine

    return 0 if mine(options.prompt, model=options.model) else 1


def _kit(options: argparse.Namespace) -> int:
    from minikv.course.kit import make_kit

    make_kit(options.folder, quiet=options.quiet, torch_index=options.torch_index)
    return 0
