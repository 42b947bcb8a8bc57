"""How every CPU kernel is compiled: kept on disk, and without the interpreter's lock so that threads can share it."""

SETTINGS = {"cache": True, "nogil": True}
