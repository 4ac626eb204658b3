"""Pure codecs: bytes or text to stored offsets and back. One module a format; no I/O, no clock."""
