"""The limits on how much of a server's answer or page is kept, above the size of any valid one."""

LIMIT = 4 * 2**20  # bytes of a page, of an event, and of all text of an answer
STREAM_LIMIT = 64 * LIMIT  # bytes of a stream
FRAMING_LIMIT = 2**16  # bytes without content in a row: headers, interim answers, framing of chunks
MAX_CHUNKS = 2**18  # chunks of an answer

TOO_LONG = f"is longer than {LIMIT // 2**20} MB"
