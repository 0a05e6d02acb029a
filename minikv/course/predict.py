"""Predict first: a guess before the result, an explanation after it, never a score."""

from __future__ import annotations

from minikv.course.declare import Question, find, not_known, of_chapter
from minikv.course.home import note, noted
from minikv.course.say import say

_PREDICTIONS = "predictions"


def predict(question_id: str, choice: object, sure: bool = False) -> None:
    """Keep your guess: `predict("p-3.2", "B", sure=True)`.

    Prints the question with its options and marks your choice. `...` as the choice means that you
    have not guessed yet. Nobody scores it, and nothing here ever stops the notebook. Once the answer
    was revealed, your first guess stays.
    """
    question = find(Question, question_id)
    if question is None:
        say(not_known(Question, question_id))
        return
    letter = choice.strip().upper() if isinstance(choice, str) else ""
    if letter in question.options:
        letter = _keep(question, letter, sure is True)
    elif choice is ... or choice is None or (isinstance(choice, str) and not choice.strip()):
        letter = _still_there(question)
    else:
        shown = repr(choice) if isinstance(choice, (str, int, float)) else f"a {type(choice).__name__}"
        say(f"[ ] {question.id}: {shown} is not one of the options. Choose {_letters(question)}.")
    say(question.text)
    for key, option in question.options.items():
        say(f"  {'>' if key == letter else ' '} {key}  {option.text}")


def reveal(question_id: str) -> None:
    """Say what there is to say about your guess, and about the right answer."""
    question = find(Question, question_id)
    if question is None:
        say(not_known(Question, question_id))
        return
    kept = _kept(question)
    right = question.answer
    if kept is None:
        say(f"{question.id}: you made no prediction. It is {right}.")
    else:
        letter, sure = kept
        note(_PREDICTIONS, question.id, {"choice": letter, "sure": sure, "revealed": True})
        said = f"{question.id}: you said {letter}{' and were sure' if sure else ''}."
        say(said if letter == right else f"{said} It is {right}.")
        if letter != right:
            _explain(question, letter)
    _explain(question, right)


def surprises(chapter: int) -> None:
    """List the guesses of this chapter that came out otherwise: what is worth remembering."""
    if type(chapter) is not int or not 0 <= chapter < 1000:
        say("Say the number of the chapter, such as surprises(3).")
        return
    kept = [(question, _kept(question)) for question in of_chapter(Question, chapter)]
    made = [(question, guess) for question, guess in kept if guess is not None]
    surprising = [(q, guess) for q, guess in made if guess[0] != q.answer]
    if not made:
        say(f"Chapter {chapter:02d}: you made no predictions, so there are no surprises to list.")
    elif not surprising:
        of = "" if len(made) == len(kept) else f" You made {len(made)} of {len(kept)} predictions."
        say(f"Chapter {chapter:02d}: nothing surprised you.{of}")
    else:
        say(f"Chapter {chapter:02d}, your surprises:")
        for question, (letter, sure) in sorted(surprising, key=lambda item: not item[1][1]):
            say(
                f"  {question.id}  {question.text}",
                f"  you{' were sure of' if sure else ' thought'}: {question.options[letter].text}",
                f"  it is: {question.options[question.answer].text}",
            )


def keep_guess(text: object) -> str:
    """Keep one sentence of yours, `my_guess = keep_guess("...")`, to be opened again in chapter 09."""
    guess = text.strip() if isinstance(text, str) else ""
    if not guess.strip(".… "):
        before = noted("guesses", "cold-open")
        say("Your guess is kept. Chapter 09 opens it again." if isinstance(before, str) else "[ ] no guess yet")
        return before if isinstance(before, str) else ""
    if note("guesses", "cold-open", guess):
        say("Kept. Chapter 09 opens it again.")
    return guess


def open_guess() -> str:
    """Show the sentence that `keep_guess` kept, and give it back ("" if there is none)."""
    guess = noted("guesses", "cold-open")
    if not isinstance(guess, str):
        say("[ ] you kept no guess in chapter 00. Nothing is lost: read on.")
        return ""
    say("In chapter 00 you wrote:", guess)
    return guess


def _keep(question: Question, letter: str, sure: bool) -> str:
    """Note the guess unless the answer is out; say which guess stands, and return its letter."""
    before = noted(_PREDICTIONS, question.id)
    first = _kept(question)
    if first and isinstance(before, dict) and before.get("revealed") and first != (letter, sure):
        say(f"[{first[0]}] {question.id}: you have seen the answer, so your first guess stays: {first[0]}.")
        return first[0]
    guess = {"choice": letter, "sure": sure, "revealed": False}
    if first == (letter, sure) or note(_PREDICTIONS, question.id, guess):
        say(f"[{letter}] {question.id}: kept{', and you are sure' if sure else ''}. Run on to see.")
    return letter


def _still_there(question: Question) -> str:
    """Say what was predicted on another day, or how to predict; returns the letter, if there is one."""
    kept = _kept(question)
    if kept is None:
        say(f'[ ] {question.id}: no prediction yet. Yours goes in like this: predict("{question.id}", "A")')
        return ""
    say(f"[{kept[0]}] {question.id}: you predicted this before.")
    return kept[0]


def _kept(question: Question) -> tuple[str, bool] | None:
    kept = noted(_PREDICTIONS, question.id)
    choice = kept.get("choice") if isinstance(kept, dict) else None
    if not isinstance(choice, str) or choice not in question.options:
        return None
    return choice, kept.get("sure") is True


def _explain(question: Question, letter: str) -> None:
    option = question.options[letter]
    say(f"  {letter}  {option.text}", f"   {option.explanation}")


def _letters(question: Question) -> str:
    *first, last = question.options
    return f"{', '.join(first)} or {last}" if first else last
