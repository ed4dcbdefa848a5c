"""Who verified: marks that are signed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from samples import make_record

from membench.cli import cli
from membench.errors import UsageError
from membench.records.store import read
from membench.verify.marks import Mark, remove_marks, write_marks
from membench.verify.signature import SIGNERS, sign
from membench_leaderboard.frame import to_frame
from membench_leaderboard.gather import read_entries
from membench_leaderboard.rows import summarise

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


@pytest.fixture(autouse=True)
def no_signers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SIGNERS, raising=False)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", path], check=True)
    return path


def signed_folder(tmp_path: Path, key: Path | None) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "a.json").write_text(make_record().to_json())
    entry = read(folder / "a.json")
    write_marks(folder, [Mark(entry, entry.record.metrics, entry.record.size, entry.record.bounds)], key)
    return folder


def verification(folder: Path) -> tuple[str, list[str]]:
    entries, problems = read_entries([folder])
    return summarise(to_frame(entries))["verification"].iloc[0], problems


def test_marks_without_a_signature_are_shown_as_such(tmp_path: Path) -> None:
    assert verification(signed_folder(tmp_path, None)) == ("verified, unsigned", [])


def test_a_known_key_has_a_name(tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signers = tmp_path / "signers"
    signers.write_text(f"ann@example.org {key.with_suffix('.pub').read_text()}")
    monkeypatch.setenv(SIGNERS, str(signers))
    assert verification(signed_folder(tmp_path, key)) == ("verified by ann@example.org", [])


def test_an_unknown_key_has_a_fingerprint(tmp_path: Path, key: Path) -> None:
    shown = subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True, check=True).stdout.split()[1]
    assert verification(signed_folder(tmp_path, key)) == (f"verified by unknown key {shown}", [])


def test_marks_that_are_edited_after_signing_do_not_count(tmp_path: Path, key: Path) -> None:
    folder = signed_folder(tmp_path, key)
    marks = folder / "verified.json"
    marks.write_text(marks.read_text() + " ")
    words, (problem,) = verification(folder)
    assert words == "self-reported"
    assert f"the marks in '{marks}' do not count: their signature is wrong" in problem


@pytest.mark.parametrize("content", [b"", b"not a signature", b"\xff" * 100])
def test_a_broken_signature_is_no_signature(tmp_path: Path, key: Path, content: bytes) -> None:
    folder = signed_folder(tmp_path, key)
    (folder / "verified.json.sig").write_bytes(content)
    assert verification(folder)[0] == "self-reported"


def test_a_signature_for_something_else_is_none_of_ours(tmp_path: Path, key: Path) -> None:
    folder = signed_folder(tmp_path, key)
    (folder / "verified.json.sig").unlink()
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", key, folder / "verified.json"],
        check=True,
        capture_output=True,
    )
    assert verification(folder)[0] == "self-reported"


def test_verification_removes_old_signatures_too(tmp_path: Path, key: Path) -> None:
    folder = signed_folder(tmp_path, key)
    remove_marks(folder)
    assert [path.name for path in folder.iterdir()] == ["a.json"]


def test_a_file_that_is_no_key_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "no-key").write_text("x")
    (tmp_path / "no-key").chmod(0o600)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=r"cannot sign with the key .*no-key"):
        sign(tmp_path / "file", tmp_path / "no-key")


def test_signers_that_are_not_there_are_one_sentence(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = signed_folder(tmp_path, key)
    monkeypatch.setenv(SIGNERS, str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"MEMBENCH_SIGNERS names .*nowhere"):
        read_entries([folder])


def test_a_key_that_is_not_there_is_refused_before_anything_is_verified(tmp_path: Path) -> None:
    folder = signed_folder(tmp_path, None)
    done = CliRunner().invoke(cli, ["verify", str(folder), "--sign", str(tmp_path / "missing")])
    assert done.exit_code == 2
    assert (folder / "verified.json").is_file()
