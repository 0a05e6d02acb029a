"""Hints of exercise 7.1, by what the receiver did: a question, the idea, a smaller case by hand."""

from __future__ import annotations

TRUST = (
    "The network says *success* when everything that was sent has arrived. What does it know of what should have "
    "been sent?",
    "There are three numbers of tokens: expected by the door, promised by the sender, and received. Each is known by "
    "somebody else. You must bring them together.",
    "A letter says: 'I send you 3 books.' The parcel holds 1 book, and the postman says 'delivered'. You had ordered "
    "8. Who of the three has lied? Who can notice?",
)
LESS = (
    "What did you compare with what? 1 is less than 30, and 1 page is less than 8. And a digest of what was sent "
    "matches what was sent.",
    "'It fits' is a question about room. 'It is all there' is another one. What must two numbers be to each other for "
    "the second?",
    "3 tokens are expected. For 1, 2, 3 and 4 promised tokens, write down whether the handoff may be taken. What do "
    "you compare?",
)
PAGES = (
    "How many tokens can 8 pages of 64 hold? And what is the smallest number that needs 8 pages?",
    "Pages are lent whole, so their number is rounded up. Two different lengths can have the same number of pages. "
    "Compare what is not rounded.",
    "Page size 4. Write down all lengths that need 2 pages. Which of them would you take where 8 tokens are expected?",
)
MORE = (
    "More tokens than the prompt has: whose could the others be?",
    "What was expected is no lower limit. The door wrote down one number, and only this number is right.",
    "3 tokens are expected. For 2, 3 and 4 promised ones: what do you do, and what should you do?",
)
PROMISE = (
    "What did you look at in order to know how much came? Who wrote that number?",
    "A number in a message is a promise. What came can be counted. And a digest covers what is there, so it says "
    "nothing of what is not there.",
    "Page size 4, 5 tokens promised, one page came. How many slots are in it? What will lie in the second page that "
    "you reserved?",
)
LAYERS = (
    "How many tensors come with one handoff? How many of them did you look at?",
    "A token is there if its key and its value are there in each layer. One layer says nothing of the next.",
    "2 layers: write down the four tensors and their numbers of pages. Take one page away from one of them. Which "
    "line of yours can see it?",
)
LAYER_MISSING = (
    "You looked at what came. Which tensors did not come?",
    "A loop over what came says nothing of what is not in it. How many layers must come, the node knows by itself.",
    "The node has 3 layers. Write down its six tensors, and beside each the one that came for it. For which is there "
    "none? Which line of yours can see it?",
)
MORE_LAYERS = (
    "You looked at every layer of the model. What came besides?",
    "A loop over the node's layers says nothing of what came and has no place there. Whatever differs from what is "
    "expected, in whichever direction, says that sender and receiver do not speak of the same model.",
    "The node has 3 layers, and 4 come. Write down the tensors of both sides, one beside the other. Which line of "
    "yours can see the last?",
)
MORE_PAGES = (
    "How many pages did the sender think that the request has? How many do you think?",
    "What came must be as much as is expected: a handoff that is longer than it should be is not the one that you wait "
    "for. What must two numbers be to each other, so that neither too little nor too much is taken?",
    "3 pages are reserved. For 2, 3 and 4 pages that come, write down whether the handoff may be taken. What do you "
    "compare?",
)
TOLD = (
    "Whose answer begins with this token? To whom did you send it?",
    "Each client reads the answer to its own prompt. A handoff is about one request, and so is its first token.",
    "Requests 7 and 9 wait. The handoff of 7 comes, with token 311. Write down what each client has read afterwards.",
)
FORGOTTEN = (
    "What did the node know of its other requests before your function, and what does it know now?",
    "`accepted` is the node's memory of all handoffs that it has taken. A new one is added, and the others stay.",
    "4 runs here, and `accepted` is {4}. The handoff of 7 is taken. What must the set be afterwards?",
)
NOTED = (
    "For which request did something come? Which one did you note?",
    "Whoever stands in `accepted` counts as served. Its own handoff will be turned away when it comes.",
    "7 and 9 wait. The handoff of 7 is taken. Which numbers belong into `accepted`, and what happens when 9's comes?",
)
FREE = (
    "Which of your lines touches `free`? Whose list is it?",
    "Each page of a node is either free or held by one request. `expect` and `give_back` see to that, and nobody else.",
    "8 pages, of which 7 holds 3 and 9 holds 2. How many stand in `free`? And after 7 was refused?",
)
DIGEST = (
    "A digest came with the handoff. What can you do with it?",
    "Work the digest out once more, from what you received, and compare it with the one that came. If one number has "
    "changed, they differ.",
    "Take any handoff, print digest_of of it, add 1 to its first token with dataclasses.replace, and print it again.",
)
REQUEST = (
    "Whose prompt is in it? Where does it say so?",
    "A complete handoff can be complete for somebody else. It names its request; you know which one you wait for.",
    "Two prompts of 3 tokens, 'I love you' and 'I left you'. Both handoffs have 3 tokens and a right digest. What "
    "tells them apart?",
)
EARLY = (
    "At which moment did you know that something was missing? What had you sent by then?",
    "There is no way to call a token back from somebody who has read it. So what must be over before the first one "
    "goes out?",
    "Play a short handoff line by line, and write beside each line what the client has read.",
)
KEPT = (
    "The pages were lent before the handoff came. Who gives them back when it is refused?",
    "A refusal has two halves: take nothing, and leave nothing behind. Go through every path on which your code "
    "raises, also those on which torch raises for you.",
    "A node with 16 pages, 8 for each request. Two short handoffs are refused. How many pages are free for the third?",
)
OTHERS = (
    "Which pages did the sender use, and which are yours? What do the two lists have to do with each other?",
    "A node knows only its own pages. What was in the sender's first page belongs into the first page that was "
    "reserved here, whatever its number is.",
    "Reserved here are pages 9, 2 and 5. Three pages come. Write down which goes where.",
)
GIVEN_BACK = (
    "Whose number did you hand to `give_back`?",
    "Two requests are named here: the one that waits for the handoff, and the one that the handoff names. Only one of "
    "them is over now.",
    "Request 7 waits with 2 pages, request 9 with 3. The handoff of 9 comes to 7. Who must hold what afterwards?",
)
COPY = (
    "Where did your code write? Print one number of `node.keys[0]` before and after.",
    "Reading several pages out of a tensor with a list makes a new tensor. What you write into that one, the node "
    "never sees. An assignment to the pages goes to the node.",
    "Try it: a = torch.zeros(3); a[[0, 1]].add_(1); print(a). Then a[[0, 1]] = torch.ones(2); print(a).",
)
NOT_WRITTEN = (
    "Where does the first page that came belong? And the second?",
    "The order of the reserved pages is the order of the tokens. Page k of what came goes into page k of what is "
    "reserved, in every layer.",
    "Reserved are pages 9, 2 and 5. Three pages come. Write down what is in page 2 afterwards, and what you have.",
)
REPLACED = (
    "What does `node.keys` hold, for which requests? What does it hold after your function?",
    "The node's memory is not the handoff's. It holds the pages of all requests. Write what came into the pages that "
    "are reserved, and leave the rest where it is.",
)
ONE_SIDE_WRITTEN = (
    "Keys or values: which of the two did your code write? Where do the others go?",
    "A token is there if its key and its value are there. The node has one tensor for each, in every layer.",
    "2 layers: write down the four places that a page must go to.",
)
ONE_LAYER_WRITTEN = (
    "Which layers did you write, keys and values both?",
    "The model reads every layer. Each has a tensor of its own, for keys and for values.",
    "2 layers: write down the four places that a page must go to.",
)
SENDING = (
    "Prefill has already worked out the first token of the answer. Who is waiting for it?",
    "The client sees only what is sent. One token came with the handoff, and it goes out once.",
    "A prompt of 3 tokens is read by prefill. Which is the first token that decode works out itself: the first of the "
    "answer, or the second?",
)
GAVE_BACK = (
    "Who still needs these pages when the handoff was good?",
    "Pages go back when the request is over. A handoff that was taken is where its answer begins.",
    "Play a complete handoff line by line. Which lines run that are meant for a refusal?",
)
SILENT = (
    "Who learns that nothing was taken?",
    "A refusal that nobody hears is how this chapter began. Raise: then somebody has to deal with it.",
    "A caller has the line `receive(node, 7, handoff)`, and in the next line it starts the answer. What stops it?",
)
TWICE = (
    "How does your code know that it has had a handoff for this request?",
    "What was taken must be remembered, and asked for first. There is a set for it in the node.",
    "Play the same handoff twice, and write down after each line what is in `accepted`.",
)
OVERWRITTEN = (
    "What had changed in these pages since the first handoff?",
    "After a handoff was taken, the answer grows in the same pages. From then on nothing that comes may be written.",
    "Page size 4, a prompt of 3 tokens, and one token of the answer is written. Draw the page. Now write the handoff "
    "over it.",
)
PULLED = (
    "You refused, and you gave pages back. Whose answer stands in them?",
    "There are two refusals. One ends a request that waits. The other meets one that runs, and must not touch it.",
    "Play it: a handoff is taken, and then the same comes again. After each line, who holds the 8 pages?",
)
OVER = (
    "Does this request still hold a page? Where did you write?",
    "When a request was refused, it is over. Nothing that comes for it later has a place here.",
    "Play a short handoff and then a complete one for the same request. After each line: what is reserved?",
)
STRICT = (
    "Which of your conditions did it fail? Print them one by one.",
    "A handoff is complete if request, tokens, pages of each layer and digest are what they should be. Nothing else "
    "may be asked: page numbers are local, and the last page is rarely full.",
    "1 token in pages of 4: how many pages are reserved, how many come, and what is in the other 3 slots?",
)
SECOND = (
    "Request 7 was served. What is different for request 9 in your code?",
    "7 is an example. Which request waits is in the argument `request`, and each question to the node is asked for it.",
    "Write down each place in your code where a request's number stands. Which of them is right for request 9?",
)
OUTSIDE = (
    "The first node was served, and this one is new: nothing was taken here. Where does your code remember the first?",
    "A name outside your function outlives the node. `node.accepted` belongs to this node, and is empty at first.",
    "Two nodes, and on each a request 7 waits. Both handoffs are complete. How many may be taken?",
)
CLUSTER = (
    "Which of the node's attributes did you take for the same in every cluster?",
    "Inside a cluster the layers, the pages and the prompts have other sizes. Everything you need is in `node` and in "
    "the handoff.",
    "Which numbers stand in your code as figures? Where do they come from?",
)
