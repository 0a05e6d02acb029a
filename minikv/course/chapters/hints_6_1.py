"""Hints of exercise 6.1: ask, give the idea, give a smaller case to do by hand."""

from __future__ import annotations

FOR_NOW = (
    "Will the same request be welcome in three steps? What does a caller do who is told no?",
    "Free slots come and go, and a refusal stays. So a refusal must not depend on what comes and goes.",
    "4 slots, 1 of them free. A request needs 2. Play it: the others end, and 4 are free. Who comes back to tell it?",
)
FOR_EVER = (
    "How long does it wait? Who stands behind it meanwhile?",
    "Waiting helps if what is missing comes back. What is the most that can ever be free?",
    "4 slots. R1 needs 6, R2 needs 1, and they are served in turn. Write down who runs in steps 1, 2 and 3.",
)
POOL = (
    "Which of the server's numbers did you ask before you let this in?",
    "The context says how far a request may reach. The pool says what this server can keep. Neither follows from "
    "the other.",
    "Context 100, 4 slots. A prompt of 10 tokens: which step is the first that finds no slot?",
)
CONTEXT = (
    "Which of the server's three numbers did you not look at?",
    "A request may take so many positions, however much memory there is. That is a limit of its own.",
    "Context 4, 100 slots. A prompt of 6 tokens: at which position does the last one stand?",
)
ANSWER = (
    "What does a request write after its prompt?",
    "The answer takes slots and positions as well. How many it may take at most, the request says itself.",
    "6 slots. A prompt of 5 tokens and an answer of 4. Write each token into a slot. Which one finds none?",
)
HALF = (
    "Who gets the slot that its answer needs two steps later?",
    "A door that promises to the end needs room to the end. minikv's scheduler dares more: it starts when the prompt "
    "has room, and takes pages back from somebody if it comes to that. Here you write the careful one.",
    "10 slots, 4 of them free. A prompt of 4 and an answer of 3. Write down what is free after each token.",
)
NO_ROOM = (
    "What did you compare with what is free?",
    "Serve means: all that it may ever write has room now.",
    "10 slots, 3 of them free. A prompt of 4 and an answer of 2. Which tokens find a slot?",
)
WITH_ROOM = (
    "What is missing for this request?",
    "If all that it may ever write has room now, nothing is gained by waiting or by a no.",
    "10 slots, all free. A prompt of 2 and an answer of 2. Write each token into a slot. How many are left?",
)
LAST_TOKEN = (
    "How many slots does this request write? Count those of the prompt, and then each answer token.",
    "A prompt of N is read: N positions are written and N + 1 tokens known. The newest token is written only when a "
    "further one is to be computed. For the last one, none is.",
    "3 slots. A prompt of 2 and an answer of 2. For each step write down what is written and what is known after it.",
)
ONE_TOO_MANY = (
    "How many slots are there, and how many does it write? Say both numbers aloud.",
    "Exactly full is right and one more is wrong. Ask your comparison at both: with as much as there is, and with one "
    "more.",
    "3 slots. A prompt of 2, an answer of 2, then of 3. What does your comparison say for each?",
)
CONTEXT_BORDER = (
    "Does the last token have a position? Does it have a slot?",
    "Every known token stands at a position, the last one too, though nobody ever writes it. So the two limits differ "
    "by one.",
    "Context 4, 100 slots. A prompt of 2, an answer of 2, then of 3. At which position does each last token stand?",
)
FREE_BORDER = (
    "Exactly as many free as it writes: is that enough?",
    "The number that you compare with the pool is the number that you compare with what is free.",
    "5 slots, 3 free. A prompt of 2, an answer of 2, then of 3. Write the tokens into the free slots.",
)
CUT = (
    "What does the caller read, and how would they know that it answers a shorter question?",
    "Cutting looks kind and is silent. A no is heard, and the caller can choose what to leave out.",
    "Cut `do not send it to Leon` to its last four words. What does it ask for now?",
)
CAPPED = (
    "Who reads max_tokens after you?",
    "The door says one of three words. It does not make the request smaller until it fits.",
    "A caller asks for 8 tokens and gets 2. Was the answer finished, or was it cut off? How do they tell?",
)
EDITED = (
    "Who reads this list after you? What do they take it for?",
    "The list is the caller's. Everybody behind the door believes that it is what was sent. Look at it, take its "
    "length, and leave it.",
    "a = [1, 2, 3]; b = a; b.clear(). What is len(a) now? Which of your lines does the same?",
)
EDITS_SERVER = (
    "Who lends slots: the door, or the pool?",
    "The door compares. It lends nothing, so it has nothing to book.",
    "Ask your door twice about one request. Must the second answer differ from the first?",
)
REMEMBERS = (
    "What changed between the two questions?",
    "Same request, same server, same answer: what your door may look at stands in its two arguments.",
    "Which name in your code lives longer than one call? What is in it after the first, and after the second?",
)
NO_ANSWER = (
    "Which way does this request take through your code, and where does that way end?",
    'Every way must end in one of the words "serve", "wait" and "refuse", given back with `return`.',
    "Take this very request and go through your lines one by one. At which line does it leave?",
)
NOT_A_WORD = (
    'The three words are "serve", "wait" and "refuse". Which of them do you mean?',
    "The door says what becomes of the request. The status is made from that, by others.",
)
REASON = (
    "Who reads the word, and who reads the reason?",
    "A program reads the word, a person the reason. The door above keeps them apart: first a word, then a text.",
)
FIRST = (
    "Two things are here. Which one does a program look at first?",
    "The door above gives back the word first, and beside it the reason.",
)
REASON_NO_TEXT = (
    "The word is right there. Could a person read what stands beside it?",
    "A reason is a text, as in the door above. Numbers go into it with an f-string.",
)
RAISES = (
    "Who catches it? What becomes of the server's step if nobody does?",
    "To refuse is an answer like the others. Give it back, as the door above does: the word, and then your reason.",
)
OTHER = (
    "Which of the server's three numbers decides here?",
    "Work out two numbers, the slots that it may write and the positions that it may take. Then ask three questions.",
    "Take this very request, and write down both numbers before you run your code.",
)
