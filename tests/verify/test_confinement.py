"""What a confined process can do: compute, and speak through its pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from membench.verify.confinement import lacking

TRIES = """
import ctypes, json, os, socket, subprocess, sys, tempfile
from membench.verify.confinement import apart, confine

outside, theirs, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]


def compiled():
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "a.c"), os.path.join(folder, "a")
        with open(source, "w") as file:
            file.write("int main(){return 0;}")
        subprocess.run(["cc", source, "-o", program], check=True, capture_output=True)
        subprocess.run([program], check=True)


def with_a_listener():
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(sys.argv[4])


WAYS = {
    "read": lambda: open(theirs).read(),
    "scratch": lambda: tempfile.TemporaryFile().write(b"x"),
    "nowhere": lambda: open(os.devnull, "w").write("x"),
    "compile": compiled,
    "write": lambda: open(theirs, "a"),
    "make": lambda: open(theirs + "x", "w"),
    "remove": lambda: os.remove(theirs),
    "date": lambda: os.utime(theirs, (1, 1)),
    "mode": lambda: os.chmod(theirs, 0o600),
    "attribute": lambda: os.setxattr(theirs, "user.a", b"x"),
    "signal": lambda: os.kill(outside, 0),
    "look": lambda: open(f"/proc/{outside}/mem", "rb"),
    "network": lambda: socket.create_connection(("127.0.0.1", 9), 1),
    "abstract socket": with_a_listener,
    "power": lambda: os.setuid(os.getuid() + 1),
    "unmount": lambda: subprocess.run(["umount", "/dev/shm"], check=True, capture_output=True),
}


def attempt(missing):
    outcomes = {"lacking": missing}
    for name, way in WAYS.items():
        try:
            way()
            outcomes[name] = True
        except (OSError, subprocess.SubprocessError):
            outcomes[name] = False
    print(json.dumps(outcomes), flush=True)


apart(attempt, "") if kind == "apart" else attempt(confine())
"""


@pytest.mark.skipif(bool(lacking()), reason=f"this machine has no {lacking()}")
@pytest.mark.parametrize("kind", ["apart", "confined"])
def test_a_confined_process_reads_and_computes_and_changes_nothing(kind: str, tmp_path: Path) -> None:
    import socket

    theirs = tmp_path / "theirs"
    theirs.write_text("x")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name := f"\0membench-{os.getpid()}-{kind}")
        listener.listen()
        words = [sys.executable, "-c", TRIES.replace("sys.argv[4]", repr(name)), str(os.getpid()), str(theirs), kind]
        told: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
    assert told.pop("lacking") == []
    assert {name for name, succeeded in told.items() if succeeded} <= {"read", "scratch", "nowhere", "compile"}
    assert told["read"]
    assert told["scratch"]
    assert theirs.read_text() == "x"


def test_where_it_cannot_be_had_the_verdict_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from membench.plan.trial import Point
    from membench.verify.confinement import _Confinement, in_words
    from membench.verify.retrain import Repeat, _judged, _Trained

    elsewhere = _Confinement()
    elsewhere.linux = False
    missing = elsewhere.leave(processes=False)
    assert in_words(missing) == "namespaces"
    point = Point("theirs", "{}", "bigram", 1, "{}", "quick", 1, "{}")
    one = Repeat(point, (1,), (), foreign=True)
    trained = _Trained(problems={point.id: "x"}, lacking="namespaces and Landlock (Function not implemented)")
    found = _judged(one, trained, {})
    assert found.notes[0].endswith("this machine has no namespaces and Landlock (Function not implemented)")
    assert found.as_json()["notes"] == list(found.notes)
    assert _judged(replace(one, foreign=False), trained, {}).notes == ()
