"""What is said about wrong answers to exercise 10.1: ask, then the idea, then a smaller case by hand."""

OWN_POOL = (
    "Both doors are right. Which of them did the client hear, and what did the other one know?",
    "A request passes every node. Whoever lets it in must know what all of them can hold.",
    "Two rooms, one for 3 people and one for 8, one behind the other. How large a group do you let in at the front?",
)
STATUS_ONLY = (
    "The status was not what hurt the stranger. At what moment were the slots read, and at what moment did you look?",
    "A status is told at the end. What is read until then has been read, and in a stream it has been sent.",
    "A guard at the exit checks bags. Write down what a visitor may have read aloud by then.",
)
ONE_POOL = (
    "A request passes every node. Which of the pools decides?",
    "Do not ask which node it is. Ask which number is never too large.",
    "Pools of 9, 4 and 7 slots, one after the other. How long may a request be that fits everywhere?",
)
NO_FENCE = (
    "The page number is the same for the old writer and for the new one. What is different?",
    "Chapter 09 has a word for how many times a page was lent. Whoever writes should have to show it.",
    "Lend page 5 twice and write down both tickets. Now one of the two comes. How do you tell which?",
)
LENT = (
    "The page is lent. To whom, when the old writer comes?",
    "That somebody holds the page does not make this writer its holder. The ticket says whose time it was.",
    "Lend page 5, take it back, lend it again. Is it lent? Is it the old writer's?",
)
OLDER = (
    "Which comparison did you choose, and which of the two tickets is the larger?",
    "A ticket is right or it is not. There is no nearly.",
    "Tickets 1 and 2 for page 5. For each, write down what your comparison says.",
)
COMES_ROUND = (
    "Can two holders of one page ever have the same ticket?",
    "What was given out once must not be given out again, not even after the page came back.",
    "Lend page 5 and take it back, three times. Write down the three tickets.",
)
ONE_FOR_ALL = (
    "Page 6 was lent once and is still held. Why is its ticket worthless now?",
    "Each page has a history of its own. One number for all pages forgets whose it was.",
    "Lend page 5, lend page 6, lend page 5 again. Which tickets must still open a page?",
)
KEEPS_OUT = (
    "This writer holds the page. With what did you compare its ticket?",
    "What `lend` gave back last for a page is what `write` must know again.",
    "Lend page 5 and print the ticket. Write with it at once, and print both sides of your comparison.",
)
WIPED = (
    "In which order did the three things happen: the page came back, you wiped it, the old writer wrote?",
    "Wiping removes what is there. It does not remove the writer who is still on the way.",
    "Draw one page and three moments: taken back and wiped, lent to a new client, the late write. What is in it then?",
)
WIPED_IN_PART = (
    "Which of the pages did you leave as they were? And who can still write into the others?",
    "The last page of a request is a page like the others. But even with it, wiping comes before the late write.",
    "Three pages, `pages[:-1]`. Which are wiped? Now the old writer writes into all three. What is in them?",
)
DECODE_ONLY = (
    "One of the two legs has said no. Who tells the client?",
    "Two legs, one answer. If either of them failed, the request failed.",
    "Write a small table: prefill 200 or 400, decode 200 or 400. In how many of the four cases is the answer 200?",
)
WAITS = (
    "Which of the two legs will never say anything any more? And whom does your client wait for?",
    "An error of one leg is enough for an answer. Success needs both.",
    "Prefill says 502, decode says nothing. Go through your lines with these two values.",
)
TOO_EARLY = (
    "Decode has not ended. What do you know about the rest of the answer?",
    "One success is half of one. Only an error may be told before both have ended.",
    "Prefill says 200, decode says nothing. What does a client do who is told 200 now?",
)
OTHER_STATUS = (
    "Which leg has said what you tell the client?",
    "Do not make up a status: a client that is told 400 changes its request, one that is told 502 tries again.",
    "Prefill 200, decode 429. Which of these two numbers must the client hear?",
)
NEW_PART = (
    "What did this part do right in its own chapter that it does not do now?",
    "Leave the method out, and your part from that chapter is used.",
    "Run its check from its own chapter on it.",
)
STILL_OPEN = (
    "Which of your methods is called in this scenario, and what does it say?",
    "Each scenario has one moment at which it could be stopped: the door, the handoff, the write, the end of a leg.",
    "Put a `print` in each method, and play this scenario alone.",
)
NO_REASON = (
    "Put them into `why`: what each guard stops, and one thing that it does not.",
    "There is no single right answer. A choice, a scenario that it does not cover, and a cost will do.",
    'Begin with "I would ship ... first, because ...".',
)
