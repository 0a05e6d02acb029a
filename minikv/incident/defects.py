"""The eight defects and their guards, by letter. What each one did is told where it is re-created, in `history`."""

DEFECTS = {
    "a": "a refusal swaps in a one-token placeholder and queues it anyway",
    "b": "admission reads a status field that the verdict is not in",
    "c": "the capacity check measures the placeholder",
    "d": "prefill and decode validate alone, against different pools",
    "e": "the receiver trusts 'success' without a length",
    "f": "decode's length comes from the request, not from what was written",
    "g": "a page lent on carries the past, and old writers still reach it",
    "h": "the pending refusal is overwritten by 'length' and becomes HTTP 200",
}
GUARDS = {
    "a": "a refusal is terminal",
    "b": "one predicate over one state machine",
    "c": "the length recorded at the door",
    "d": "one truth about capacity",
    "e": "complete and authentic, and both sides are told",
    "f": "read only what is written",
    "g": "generations, checked on every read and write",
    "h": "the client gets the worst status of both legs",
}
