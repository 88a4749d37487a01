"""How much of what a server sends is kept. No model's answer is longer, and no page that is read of a server."""

LIMIT = 4 * 2**20  # bytes of a page, of an event, and of all text of an answer
STREAM_LIMIT = 64 * LIMIT  # bytes of a stream, what surrounds its text included
FRAMING_LIMIT = 2**16  # bytes that bring no content, in a row: headers, interim answers, what surrounds chunks
MAX_CHUNKS = 2**18  # of an answer

TOO_LONG = f"is longer than {LIMIT // 2**20} MB"
