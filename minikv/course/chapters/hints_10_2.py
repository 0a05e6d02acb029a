"""What is said about wrong answers to exercise 10.2: ask, then the idea, then a smaller case by hand."""

TWO_LAYERS = (
    "One layer looks at answers, one at parts. Which of the two is missing?",
    "`content(self, start)` and `invariants(self, parts)`, both give True for red.",
    "Write a `content` that gives False, and an `invariants` that gives False. What is your score?",
)

# Content: the right engine turned red

REFUSAL = (
    "Could anybody have served this request? Count its slots.",
    "A refusal that is true is a right answer. Red is what should have been refused and was not, or the other way.",
    "A pool of 28 slots and 8 tokens of answer. What is the longest prompt that fits? (The last token is not stored.)",
)
SHARED = (
    "Whose word is this? Could the tester have said it, too?",
    "A canary is a word that only one tenant can have brought along. Take away what others say as well: the tester, "
    "the other tenants, and the model by itself.",
    'Texts: "the cat is red" and "the road is free". Which words of the first would prove anything?',
)
RED_INVARIANT = (
    "Print what each part says, on the right engine. Which of these answers did you take for wrong?",
    "A rule must hold for the right engine with every input. A part may refuse what is not whole, and must take "
    "what is.",
    "18 tokens expected, 4 written. How many may be read? Not fewer, and not more.",
)

# Content: a harmful set stayed green

ASK = (
    "What does a client send, and what comes back? Begin there.",
    "Start a server, let tenants visit it, ask, and look at the answer.",
    "`server = start()`, one visit, one question of 18 tokens. Print the answer.",
)
STATUS = (
    "You looked at the status. What was said?",
    "A leak has status 200, or comes before the error. Only the words tell.",
    "Take one answer of such a server. Mark each word that the tester did not bring along.",
)
CANARY = (
    "Which words of a stranger stand in this answer? What did you look for?",
    "A real leak is cut and mixed: a secret rarely comes out whole, in one piece. Every word that only a stranger can "
    "know is a finding.",
    'The secret is "7731 9024 cedar gravel". Which of these answers gives it away: "on 7731", "a way cedar"?',
)
WORDS_THEN_ERROR = (
    "The status is an error. What had the client read by then?",
    "In a stream, words go out before the end is known. An error takes nothing back.",
    "A stream of three words, then 400. Write down what the client knows now.",
)
FRESH = (
    "Whose words could come out of a server that nobody has used?",
    "A leak needs a past. The pages must have been somebody else's before.",
    "Draw a pool that was never written to. What can be read in it?",
)
SHORT_PAST = (
    "How far into the pages does your question read, and how far did your visitors write?",
    "What is read last lies at the end of the prompt. Somebody must have written there: more visitors at the same "
    "time, or a shorter question.",
    "A visitor fills 7 pages of 4. Your question of 40 tokens reads page 9. Who wrote that?",
)
EQUAL_POOLS = (
    "For which lengths do two doors with these pools disagree?",
    "Equal pools refuse together. The window is between two limits.",
    "Two pools of 28 slots. Is there a length that one takes and the other does not? Make one of them larger.",
)
FAR = (
    "What do both nodes say to a prompt of this length?",
    "Far out, everybody refuses. The window lies just above the smaller limit.",
    "Pools of 28 and 64 slots. Name one length that fits the one and not the other, and one that fits neither.",
)
ORDINARY = (
    "What does a server do with a length that only one of its nodes can hold?",
    "Mistakes live at the limits. Ask on both sides of each.",
    "Pools of 28 and 64 slots. Which lengths would you try, and why?",
)
STREAM = (
    "When did you read the answer, and when did this client read it?",
    "Whoever reads along has read what came before the error. There is a way to ask for that.",
    "The same question twice, once with `stream=True`. Compare what comes back.",
)
NONSENSE = (
    "No stranger's word is in it. Is it an answer to what was asked?",
    "200 says: this is your answer. For a request that no node could hold, there is none.",
    "28 slots, 31 tokens. Which status is true?",
)
WIRE = (
    "What can go wrong between two nodes? Did any of it happen on your stand?",
    "A guard shows only when something fails. So let it fail, in every way that there is.",
    "Start one server for each wire, ask each of them the same, and print the five answers.",
)
NO_ANSWER = (
    "What is the status of an answer that never came?",
    "Silence is a harm, too: the client waits, and its pages are held.",
    "Print the status of each answer on a server whose wire gives up.",
)

# Invariants: a single defect stayed green

PARTS = {
    "a": (
        "refuse",
        "a refused request loses its prompt and is queued all the same.",
        (
            "When prefill refuses, what should be left of the request, and where should it stand?",
            "A refusal is final, and a prompt has one length. Two things to compare.",
            "`parts.refuse(18)`: which two values must come back?",
        ),
    ),
    "b": (
        "enter",
        "a request whose refusal is already noted is let into the queue.",
        (
            "Somebody else has refused this request. What must the queue do?",
            "The queue asks for the verdict, wherever it was noted.",
            "`parts.enter(...)` with True and with False: what must each give?",
        ),
    ),
    "c": (
        "room",
        "a prompt of 31 tokens fits 28 slots, if somebody has a copy of 1 token.",
        (
            "Two lengths are there. Which of them is the request's?",
            "The length is written down once, at the door. All others are copies.",
            "28 slots. A copy of 1, and 31 on record. Does it fit?",
        ),
    ),
    "d": (
        "door",
        "the door lets in what one of the two nodes cannot hold.",
        (
            "What is the shortest request that must be refused, with pools of 28 and 256 slots?",
            "The door must know the smaller of the two.",
            "31 tokens and 8 of answer. How many slots, and where do they not fit?",
        ),
    ),
    "e": (
        "take",
        "a handoff is taken though pages are missing, or tokens.",
        (
            "Three numbers describe a handoff. What if they do not agree?",
            "Expected, promised, received. Whoever takes it must have compared all three.",
            "18 tokens in pages of 4. How many pages must come? Try one less.",
        ),
    ),
    "f": (
        "readable",
        "more may be read than was written.",
        (
            "So much was expected, and so much was written. How far may attention read?",
            "Reserved, written, read: the last is never more than the one in the middle.",
            "18 expected, 4 written. What must come back, and what would be too much?",
        ),
    ),
    "g": (
        "write",
        "an old writer gets into a page that was lent on.",
        (
            "The page belongs to somebody else by now. Whose write is this?",
            "A page has a generation. Who writes with an old one is turned away.",
            "`parts.write(...)` with True and with False: what must each give?",
        ),
    ),
    "h": (
        "status",
        "one leg was refused, and the client is told 200.",
        (
            "The two legs do not agree. Which one does the client hear?",
            "The worst status wins.",
            "Prefill 400, decode 200. What must the client be told?",
        ),
    ),
}
"""By letter of the defect: which method shows it, what it does, and the hints."""
