"""The tables that come with this package, and whether they are the ones that a task's version means."""

from __future__ import annotations

import hashlib
from importlib import resources


def read_table(name: str, sha256: str) -> bytes:
    """The content of a file in data/. ValueError when it is not the one with this digest."""
    content = (resources.files(__package__) / "data" / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"'{name}' is not the table that this version of membench was made with; install it again")
    return content
