"""Signatures of marks: who verified, by the keys that people have already (`ssh-keygen -Y`).

The signature of `verified.json` lies beside it, in `verified.json.sig`, and is over its bytes: the digests of the
records and what was measured.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from membench.errors import UsageError
from membench.records.files import NotAFile, read_regular

SUFFIX = ".sig"
NAMESPACE = "membench-verified"  # a signature for something else is none of ours
SIGNERS = "MEMBENCH_SIGNERS"  # environment variable: the file of keys that you know (ALLOWED SIGNERS in ssh-keygen(1))
MAX_BYTES = 1 << 16
MAX_SECONDS = 30.0
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


class NotSigned(ValueError):
    """A signature that is not one of these bytes; the text says why."""


def sign(path: Path, key: Path) -> Path:
    """Sign a file. UsageError when the key is none, or there is no ssh-keygen."""
    signature = path.with_name(path.name + SUFFIX)
    signature.unlink(missing_ok=True)  # ssh-keygen would ask whether to replace it
    done = _ssh_keygen("sign", "-n", NAMESPACE, "-f", str(key), str(path))
    if done.returncode or not signature.is_file():
        raise UsageError(f"cannot sign with the key '{key}': {_last_line(done)}")
    return signature


def signer(path: Path, content: bytes) -> str:
    """Who signed these bytes, which were read from `path`: a name that you know, else a fingerprint; empty: nobody.

    NotSigned for a signature of other bytes.
    """
    signature = path.with_name(path.name + SUFFIX)
    if not os.path.lexists(signature):
        return ""
    try:
        read_regular(signature, MAX_BYTES)
        done = _ssh_keygen("check-novalidate", "-n", NAMESPACE, "-s", str(signature), content=content)
    except (NotAFile, UsageError) as error:
        raise NotSigned(str(error)) from None
    found = _FINGERPRINT.search(done.stdout.decode(errors="replace"))
    if done.returncode or found is None:
        raise NotSigned(_last_line(done))
    return _known_name(signature, content) or f"unknown key {found[0]}"


def _known_name(signature: Path, content: bytes) -> str:
    """The name that the reader's own file of signers has for the key; empty if it has none."""
    signers = os.environ.get(SIGNERS)
    if not signers:
        return ""
    if not Path(signers).is_file():
        raise UsageError(f"{SIGNERS} names '{signers}', which is no file; it holds lines such as: NAME ssh-ed25519 KEY")
    found = _ssh_keygen("find-principals", "-s", str(signature), "-f", signers).stdout.decode(errors="replace")
    for name in found.split():
        verified = _ssh_keygen(
            "verify", "-n", NAMESPACE, "-s", str(signature), "-f", signers, "-I", name, content=content
        )
        if verified.returncode == 0:
            return name
    return ""


def _ssh_keygen(*words: str, content: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    # without standard input it cannot ask for a passphrase, and wait
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if content is None else {"input": content}
    try:
        return subprocess.run(["ssh-keygen", "-Y", *words], capture_output=True, timeout=MAX_SECONDS, **given)
    except FileNotFoundError:
        raise UsageError("signatures need ssh-keygen, which is not on the PATH; it comes with OpenSSH") from None
    except subprocess.TimeoutExpired:
        raise UsageError("ssh-keygen gave no answer; does the key have a passphrase? Add it with ssh-add") from None


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else f"ssh-keygen ended with exit code {done.returncode}"
