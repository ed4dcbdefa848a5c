"""Compiles a kernel's C++ source with the user's own compiler, at first use, and keeps the result."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from membench.errors import NotApplicable
from membench.temporary import temporary_folder

COMPILERS = ("c++", "g++", "clang++")
MAX_SECONDS = 300.0  # for the compiler; it takes a few
HEADERS = Path(__file__).parent  # kernel.hpp, transformer.hpp and keys.hpp are here
# Of what -ffast-math stands for, only what leaves every sum in its order: a training must repeat bit for bit.
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared", "-w")


def library(source: Path) -> ctypes.CDLL:
    """The compiled source, which may include the headers of this folder.

    Raises NotApplicable when there is no compiler, or when it refuses.
    """
    compiler = find_compiler()
    flags = [*FLAGS, f"-I{HEADERS}"]
    stem = f"{source.parent.name}-{_digest(source, compiler, flags)}"
    for kept in sorted(cache_folder().glob(f"{stem}-*.so")):
        if _is_sound(kept):
            with suppress(OSError):  # it was made for another system: then it is made again
                return ctypes.CDLL(str(kept))
    made = _compile([*compiler, *flags, str(source)], cache_folder(), stem)
    try:
        return ctypes.CDLL(str(made))
    except OSError as error:
        raise NotApplicable(f"cannot load the compiled kernel: {error}") from error


def _is_sound(path: Path) -> bool:
    """Whether a file is what was compiled: ours or the administrator's, nobody else's to change, and whole.

    Its name has the digest of its content. Loading half a library would kill the process, and anybody's would run it.
    """
    try:
        found = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(found.st_mode) else b""
    except OSError:
        return False
    is_ours = found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022
    return is_ours and path.stem.endswith(f"-{_content_digest(content)}")


def _content_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


def find_compiler() -> tuple[str, ...]:
    """The command of the C++ compiler: $CXX, which may hold arguments, or the first one on PATH."""
    chosen = os.environ.get("CXX", "").strip()
    for name in [chosen] if chosen else COMPILERS:
        program, *arguments = shlex.split(name)
        path = shutil.which(program)
        if path:
            return (path, *arguments)
    raise NotApplicable(f"no C++ compiler found: looked for {chosen or ', '.join(COMPILERS)}")


def cache_folder() -> Path:
    """Where compiled kernels are kept: $MEMBENCH_CACHE, or the user's cache folder."""
    chosen = os.environ.get("MEMBENCH_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "membench"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "membench"


def _native() -> str:
    """The flag that asks for code for this very processor."""
    return "-mcpu=native" if platform.machine().lower() in ("arm64", "aarch64") else "-march=native"


def _digest(source: Path, compiler: tuple[str, ...], flags: Sequence[str]) -> str:
    """Changes with everything that the compiled code depends on."""
    texts = [path.read_text(encoding="utf-8") for path in [source, *sorted(HEADERS.glob("*.hpp"))]]
    parts = [*texts, *flags, _native(), *compiler, _version(compiler), _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


@functools.cache
def _version(compiler: tuple[str, ...]) -> str:
    return _run([*compiler, "--version"]).stdout


@functools.cache
def _processor() -> str:
    """What the machine's processor is and can do: code for one kind may crash on another."""
    if sys.platform == "darwin":
        return platform.machine() + _run(["sysctl", "-n", "machdep.cpu.brand_string"]).stdout
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.platform()
    telling = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU ", "Features")
    return "\n".join(sorted({line for line in lines if line.startswith(telling)}))


def _compile(command: Sequence[str], cache: Path, stem: str) -> Path:
    """Other processes may be doing the same: each writes a file of its own, and puts it in place when complete."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with temporary_folder(cache / "kernel") as folder:
            built = folder / f"{stem}.so"
            done = _run([*command, _native(), "-o", str(built)])
            if done.returncode != 0:  # not every compiler knows its own processor
                done = _run([*command, "-o", str(built)])
            if done.returncode != 0:
                raise NotApplicable(f"{command[0]} could not compile the kernel: {_first_line(done.stderr)}")
            built.chmod(0o755)  # whatever the umask: what others may write to is not loaded again
            target = cache / f"{stem}-{_content_digest(built.read_bytes())}.so"
            os.replace(built, target)
            return target
    except OSError as error:
        raise NotApplicable(f"cannot keep a compiled kernel: {error}") from error


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Into files and not through pipes, which a child of a compiler that was ended would keep open."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=False,
                                  timeout=MAX_SECONDS)  # fmt: skip
        except OSError as error:
            raise NotApplicable(f"cannot start {command[0]}: {error}") from error
        except subprocess.TimeoutExpired:
            raise NotApplicable(f"{command[0]} took more than {MAX_SECONDS:g} s") from None
        texts = [(file.seek(0), file.read())[1] for file in (out, err)]
    return subprocess.CompletedProcess(command, done.returncode, *texts)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "it gave no reason")
