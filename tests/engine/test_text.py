"""Text that grows with an answer: whole characters, the same however it is cut, ended before a stop text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from helpers import VOCABULARY, Server, answers, assert_quiet, cluster, llama, prompt_of, reference, served
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import Unigram, WordLevel
from transformers import PreTrainedTokenizerFast

from minikv import Engine, SamplingParams, load_model
from minikv.models.adapter import BoundModel
from minikv.models.tiny import byte_tokenizer
from minikv.text import BROKEN, Detokenizer

Decode = Callable[[Sequence[int]], str]
EMOJI, CHINESE = "🙂", "世界"
usual = settings(deadline=None, max_examples=80)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.text("aé世🙂 \n\ufffd", max_size=8)
UNK, BYTE_0 = 0, 1  # ids of the tokenizer with pieces
PIECES = ["▁", "▁the", "▁café", "é", "a", "b", "ab", "▁a", "世", ".", "\n"]


@cache
def byte_decode() -> Decode:
    return decode_of(byte_tokenizer())


@cache
def piece_tokenizer() -> PreTrainedTokenizerFast:
    """As SentencePiece has it: spaces belong to the pieces, unknown characters are bytes, the first space goes."""
    vocabulary = [("<unk>", 0.0), *((f"<0x{byte:02X}>", -10.0) for byte in range(256))]
    vocabulary += [(piece, -2.0) for piece in PIECES]
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=UNK, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, eos_token="<unk>")


def decode_of(tokenizer: Any) -> Decode:
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def byte_ids(text: str | bytes) -> list[int]:
    """One token a byte; the tiny tokenizer numbers them in an order of its own."""
    data = text.encode() if isinstance(text, str) else text
    return [byte_of()[byte] for byte in data]


@cache
def byte_of() -> dict[int, int]:
    """The id of each byte: a byte-level tokenizer shows some bytes as they are, and the others shifted."""
    shown = [byte for byte in range(256) if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174]
    hidden = [byte for byte in range(256) if byte not in shown]
    symbols = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return {byte: byte_tokenizer().convert_tokens_to_ids(symbol) for byte, symbol in symbols.items()}


def pieces_of(decode: Decode, ids: Sequence[int], prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> list[str]:
    """What each token adds, and what the end adds."""
    text, found = Detokenizer(decode, prompt, stop), [""]
    for token in ids:
        text.push(token)
        found.append(text.text)
    text.finish()
    found.append(text.text)
    assert all(later.startswith(before) for before, later in pairwise(found))
    return [later[len(before) :] for before, later in pairwise(found)]


def data_of(tokenizer: Any, token: int) -> bytes:
    """The bytes of a token of the tokenizer with pieces."""
    piece: str = tokenizer.convert_ids_to_tokens(token)
    return bytes([token - BYTE_0]) if piece.startswith("<0x") else piece.replace("▁", " ").encode()


def piece_ids(*parts: str | bytes) -> list[int]:
    """Ids of pieces, and of bytes."""
    ids: list[int] = []
    for part in parts:
        ids += [BYTE_0 + byte for byte in part] if isinstance(part, bytes) else [257 + PIECES.index(part)]
    return ids


def check_every_cut(decode: Decode, ids: Sequence[int], text: str) -> None:
    """Answers to every beginning of some tokens: with it they are the text; nothing is broken or said twice."""
    for cut in range(len(ids)):
        prompt, answer = ids[:cut], ids[cut:]
        found = pieces_of(decode, answer, prompt)
        before = decode(prompt).rstrip(BROKEN)
        assert "".join(found) == text[len(before) :]
        assert found[-1] == "" and BROKEN not in "".join(found)


# Whole characters


@usual
@given(TEXTS.filter(lambda text: BROKEN not in text))
@example(CHINESE + EMOJI)
def test_bytes_of_a_text(text: str) -> None:
    """https://github.com/vllm-project/vllm/issues/48853: a prompt that ends inside a character, too."""
    check_every_cut(byte_decode(), byte_ids(text), text)


@usual
@given(st.binary(max_size=16) | TEXTS.map(str.encode))
def test_any_bytes(data: bytes) -> None:
    """What no text has is shown as the tokenizer shows it, when it is certain that nothing completes it."""
    decode, ids = byte_decode(), byte_ids(data)
    *found, last = pieces_of(decode, ids)
    assert "".join([*found, last]) == decode(ids) == data.decode(errors="replace")
    assert not any(piece.endswith(BROKEN) for piece in found)


@usual
@given(TEXTS.map(str.encode), st.integers(0, 3))
def test_answer_that_ends_inside_a_character(data: bytes, less: int) -> None:
    """Only the last piece, which comes when the answer is over, may have the beginning of a character."""
    data = data[: max(0, len(data) - less)]
    *found, last = pieces_of(byte_decode(), byte_ids(data))
    assert "".join(found).encode() == data[: len("".join(found).encode())]
    assert "".join(found) + last == data.decode(errors="replace")


def test_each_piece_of_a_text() -> None:
    """Nothing is held back longer than its character takes."""
    assert pieces_of(byte_decode(), byte_ids("aé🙂!")) == ["a", "", "é", "", "", "", "🙂", "!", ""]


def test_end_of_sequence_has_no_text() -> None:
    end = byte_tokenizer().eos_token_id
    ids = [*byte_ids("a"), end, *byte_ids("é"), end]
    assert pieces_of(byte_decode(), ids) == ["a", "", "", "é", "", ""]


def test_prompt_with_a_wrong_byte_before_a_cut_character() -> None:
    euro = "€".encode()
    assert pieces_of(byte_decode(), byte_ids(euro[1:]), byte_ids(b"\xff" + euro[:1])) == ["", "€", ""]


@pytest.mark.parametrize(
    "prompt", [b"", b"a", b"\xe4", b"\xe4\xb8", b"\xff", b"\xff\xff\xff\xff\xff", "a\ufffd".encode()]
)
def test_answer_that_does_not_complete_the_prompt(prompt: bytes) -> None:
    """The prompt's broken character is the prompt's: the answer starts with its own."""
    assert pieces_of(byte_decode(), byte_ids("bé"), byte_ids(prompt)) == ["b", "", "é", ""]


@pytest.mark.model
@usual
@given(text=TEXTS.filter(lambda text: BROKEN not in text))
@example(text="¶\U000c0000")
def test_every_cut_with_smollm2(smollm2: BoundModel, text: str) -> None:
    """Its tokens have several bytes, and not always whole characters."""
    ids = smollm2.tokenizer(text, add_special_tokens=False)["input_ids"]  # type: ignore[misc]
    assume(smollm2.decode(ids) == text)  # it has no tokens for some bytes
    check_every_cut(smollm2.decode, ids, text)


@pytest.mark.model
@usual
@given(ids=st.lists(st.integers(0, 49_151), max_size=12))
def test_any_tokens_of_smollm2(smollm2: BoundModel, ids: list[int]) -> None:
    *found, last = pieces_of(smollm2.decode, ids)
    assert "".join([*found, last]) == smollm2.decode(ids)
    assert not any(piece.endswith(BROKEN) for piece in found)


def test_tokenizer_with_pieces_is_as_meant() -> None:
    tokenizer = piece_tokenizer()
    text = f"the café {CHINESE}{EMOJI} ab."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == piece_ids("▁the", "▁café", "▁", "世", "界".encode(), EMOJI.encode(), "▁", "ab", ".")
    assert decode_of(tokenizer)(ids) == text


WHOLE = st.sampled_from([*PIECES, *(character.encode() for character in "é界龘🙂")])


@usual
@given(st.lists(WHOLE, max_size=8))
def test_pieces_and_bytes(parts: list[str | bytes]) -> None:
    """The first space goes, as the tokenizer has it; every other stays, also after characters of single bytes."""
    decode, ids = decode_of(piece_tokenizer()), piece_ids(*parts)
    found = pieces_of(decode, ids)
    assert "".join(found) == decode(ids)
    assert found[-1] == "" and BROKEN not in "".join(found)


@usual
@given(st.lists(WHOLE, max_size=5))
@example(["▁a", "龘".encode(), "界".encode()])
def test_pieces_after_a_prompt(parts: list[str | bytes]) -> None:
    """Single bytes before single bytes: looked at from within a character, all of them seem broken."""
    tokenizer, ids = piece_tokenizer(), piece_ids(*parts)
    decode = decode_of(tokenizer)
    data = [data_of(tokenizer, token) for token in ids]
    for cut in range(len(ids)):
        read, text = b"".join(data[:cut]), b"".join(data).decode()
        whole = read.decode(errors="ignore")
        found = pieces_of(decode, ids[cut:], ids[:cut])
        assert "".join(found) == (decode(ids[cut:]) if whole.encode() == read else text[len(whole) :])
        assert found[-1] == "" and BROKEN not in "".join(found)


def test_rare_characters_after_rare_characters() -> None:
    decode = decode_of(piece_tokenizer())
    found = pieces_of(decode, piece_ids("龘".encode()), piece_ids("龘龘".encode()))
    assert found == ["", "", "龘", ""]


def test_single_bytes_that_end_inside_a_character() -> None:
    """The decoder takes neighbouring bytes back as a whole; what was given out before stays, and comes once."""
    decode = decode_of(piece_tokenizer())
    assert pieces_of(decode, piece_ids("é".encode(), "é".encode()[:1])) == ["", "é", "", BROKEN]


# What a token costs


@pytest.mark.parametrize("text", ["plain words, and more of them. ", "é", CHINESE, EMOJI], ids=ascii)
def test_cost_of_a_token_does_not_grow(text: str) -> None:
    """A few ids are decoded for each token, however long the answer is."""
    decoded = 0

    def counted(ids: Sequence[int]) -> str:
        nonlocal decoded
        decoded += len(ids)
        return byte_decode()(ids)

    ids = (byte_ids(text) * 600)[:600]
    growing, costs = Detokenizer(counted), []
    for token in ids:
        before = decoded
        growing.push(token)
        costs.append(decoded - before)
    assert growing.text == (text * 600)[: len(growing.text)] and len(growing.text) >= 150
    width = len(text[0].encode())
    assert max(costs) == 3 * width  # twice the character before, and this one


# Stop texts

WORDS = ["a", "b", "ab", "ba", "aab", "c", "", "bc"]
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)


def words(ids: Sequence[int]) -> str:
    return "".join(WORDS[token] for token in ids)


@settings(usual, max_examples=300)
@given(st.lists(st.integers(0, len(WORDS) - 1), max_size=12), STOPS, st.integers(0, 5))
def test_stop_texts(ids: list[int], stops: list[str], least: int) -> None:
    """Against all text so far, looked through anew for each token; the text before the least number does not count."""
    growing = Detokenizer(words, (), stops)
    for count in range(1, len(ids) + 1):
        growing.push(ids[count - 1], may_stop=count >= least)
        free, looked = words(ids[: max(0, least - 1)]), words(ids[max(0, least - 1) : count])
        if count < least:
            free, looked = words(ids[:count]), ""
        places = [place for place in map(looked.find, stops) if place >= 0]
        if places:
            assert (growing.stopped, growing.text) == (True, free + looked[: min(places)])
            break
        ends = [looked[-n:] for n in range(1, len(looked) + 1)]
        held = max((len(end) for end in ends for stop in stops if stop.startswith(end)), default=0)
        assert (growing.stopped, growing.text) == (False, free + looked[: len(looked) - held])
    if growing.stopped:
        before = growing.text
        growing.push(0)
        growing.finish()
        assert growing.text == before


def test_what_was_held_back_comes_at_the_end() -> None:
    assert pieces_of(words, [0, 1, 0], stop=["abac"]) == ["", "", "", "aba"]
    assert pieces_of(words, [0, 0, 1, 5], stop=["abac"]) == ["", "a", "", "abc", ""]


def test_no_stop_text_in_a_broken_character() -> None:
    """A stop text before the first byte of a character that is not there yet."""
    assert pieces_of(byte_decode(), byte_ids("ab🙂c"), stop=["b🙂"]) == ["a", "", "", "", "", "", "", ""]


def test_stop_text_and_a_broken_character_in_one_token() -> None:
    """A token may have a whole character and a part of the next, as " " with the first bytes of an emoji often has."""
    parts = [b"a", b" \xf0\x9f", b"\x99\x82", b"b"]
    decode: Decode = lambda ids: b"".join(parts[token] for token in ids).decode(errors="replace")  # noqa: E731
    assert "".join(pieces_of(decode, [0, 1, 2, 3], stop=[" "])) == "a"
    assert "".join(pieces_of(decode, [0, 1], stop=[" "])) == "a"


# Stop texts in answers


@pytest.fixture(scope="module")
def wordy() -> BoundModel:
    """A model whose tokens are all of two letters, each pair once, and none the end of an answer."""
    pairs = [first + second for first in "abcdefghij" for second in "klmnopqrst"][:VOCABULARY]
    tokenizer = Tokenizer(WordLevel({pair: number for number, pair in enumerate(pairs)}, unk_token=pairs[0]))
    tokenizer.decoder = decoders.Fuse()
    return load_model(llama().hf, PreTrainedTokenizerFast(tokenizer_object=tokenizer))


BUILDS: dict[str, Callable[..., Server]] = {
    "engine": lambda model: Engine(model, page_size=4, num_pages=32),
    "chunks": lambda model: Engine(model, page_size=4, num_pages=9, max_batch_tokens=3),
    "cluster": lambda model: cluster(model, 32, page_size=4),
}
PROMPT = prompt_of(9)


def stopped(model: BoundModel, build: Callable[..., Server], stop: Any, least: int = 0) -> tuple[str, int, str]:
    """Text, number of tokens and reason of an answer of 12 tokens that may stop; two such run side by side."""
    server = build(model)
    params = SamplingParams(max_tokens=12, min_tokens=least, stop=stop, logprobs=0)
    one, two = served(server, [PROMPT, PROMPT], params)
    assert answers([one, two]) == [reference(model, PROMPT, len(one.token_ids))] * 2
    assert (one.text, len(one.logprobs)) == (two.text, len(one.token_ids))
    assert_quiet(server)
    return one.text, len(one.token_ids), one.finish_reason


def test_answers_of_the_model_suit_the_tests(wordy: BoundModel) -> None:
    """No letters come twice where a stop text is looked for."""
    text = wordy.decode(reference(wordy, PROMPT, 12))
    assert len(text) == 24
    for start in range(20):
        assert text.index(text[start : start + 4]) == start


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_stop_text_anywhere(wordy: BoundModel, build: Callable[..., Server]) -> None:
    """Within tokens, and across two and three: the text ends before it, the tokens with the one that completes it."""
    text = wordy.decode(reference(wordy, PROMPT, 12))
    for start, end in [(0, 4), (4, 8), (5, 9), (7, 11), (6, 12), (20, 24), (19, 24), (0, 24), (3, 21)]:
        assert stopped(wordy, build, text[start:end]) == (text[:start], (end + 1) // 2, "stop")
    assert stopped(wordy, build, text[3:6] + "!") == (text, 12, "length")


def test_several_stop_texts(wordy: BoundModel) -> None:
    """The first that is complete; among those that one token completes, the one that begins first."""
    text, build = wordy.decode(reference(wordy, PROMPT, 12)), BUILDS["engine"]
    assert stopped(wordy, build, ["zz", text[12:16], text[6:10]]) == (text[:6], 5, "stop")
    assert stopped(wordy, build, [text[7:10], text[5:10]]) == (text[:5], 5, "stop")
    assert stopped(wordy, build, [text[4:14], text[6:10]]) == (text[:6], 5, "stop")
    assert stopped(wordy, build, (text[6:10], text[6:12])) == (text[:6], 5, "stop")


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_stop_text_before_min_tokens(wordy: BoundModel, build: Callable[..., Server]) -> None:
    """Not looked for before: the token that completes it must be number `min_tokens` at least."""
    text = wordy.decode(reference(wordy, PROMPT, 12))
    early, late = text[2:4], text[16:20]
    assert stopped(wordy, build, [early, late], least=2) == (text[:2], 2, "stop")
    assert stopped(wordy, build, [early, late], least=3) == (text[:16], 10, "stop")
    assert stopped(wordy, build, [early, late], least=12) == (text, 12, "length")


def test_stop_token_beside_a_stop_text(wordy: BoundModel) -> None:
    """What was held back for the text that never came is the answer's."""
    ids = reference(wordy, PROMPT, 12)
    text = wordy.decode(ids)
    params = SamplingParams(max_tokens=12, stop=text[5:12], stop_token_ids=[ids[3]])
    (answer,) = BUILDS["engine"](wordy).generate([PROMPT], params)
    at = ids.index(ids[3]) + 1
    assert (answer.text, answer.token_ids, answer.finish_reason) == (text[: 2 * (at - 1)], ids[:at], "stop")


def test_prompt_is_not_looked_through(wordy: BoundModel) -> None:
    """A stop text that the prompt has, or that begins in it, stops nothing."""
    text, before = wordy.decode(reference(wordy, PROMPT, 12)), wordy.decode(PROMPT)
    build = BUILDS["engine"]
    assert stopped(wordy, build, before[-1] + text[:2]) == (text, 12, "length")
    assert before[-2:] not in text and stopped(wordy, build, before[-2:]) == (text, 12, "length")


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_text_of_an_aborted_answer(wordy: BoundModel, steps: int) -> None:
    """All that its tokens say, with what was held back."""
    server = BUILDS["engine"](wordy)
    ids = reference(wordy, PROMPT, 12)
    text = wordy.decode(ids)
    number = server.submit(PROMPT, SamplingParams(max_tokens=12, stop=text[1:20]))
    for _ in range(steps):
        server.step()
    server.abort(number)
    answer = server.result(number)
    assert (answer.token_ids, answer.text) == (ids[:steps], text[: 2 * steps])
    assert_quiet(server)


def test_text_is_the_same_with_and_without_stop_texts(tiny: BoundModel) -> None:
    """One is read at once and the other at the end; bytes that are no text are among its tokens."""
    server = Engine(tiny, page_size=4, num_pages=64)
    plain, looking = SamplingParams(max_tokens=40), SamplingParams(max_tokens=40, stop=["never said"])
    for seed in range(3):
        prompt = prompt_of(9, seed, 256)
        one, two = server.generate([prompt, prompt], [plain, looking])
        assert one.text == two.text == tiny.decode(one.token_ids)
