"""What breaks, done for real: processes killed, signals, full disks, clocks, nodes. Prints a Markdown table.

    python benchmarks/faults.py                    all of it, about half an hour
    python benchmarks/faults.py drivers ray        some of it
    python benchmarks/faults.py --points 5 disk    in a sweep of 25 trials instead of 200

Linux only. As root, a small file system in memory stands for the full disk, and a read-only mount for the folder that
nobody may write to; without root, those two are left out. `ray` needs the extra of that name.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FOREVER = 3600.0  # seconds
SHARDS = 7
SEEDS = 5  # of each point; groups of them are trained together
CLOCK = """
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static double steady(void) {
    struct timespec now;
    ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}
static long backwards(void) { return (long)(3600 * steady()); }
int clock_gettime(clockid_t id, struct timespec *out) {
    int code = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(id, out);
    if (id == CLOCK_REALTIME) out->tv_sec -= backwards() % 100000000;
    return code;
}
int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec, out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""
TWO_NODES = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster()
options = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
cluster.add_node(**options)
other = cluster.add_node(**options)
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(other, allow_graceful=False)
    print("killed", flush=True)
"""


def start(words: Sequence[str], out: Path | None = None, **more: str) -> subprocess.Popen[str]:
    """From a folder of no repository: a record says in which one it was made."""
    command = [sys.executable, "-m", "membench", *words, *(["--out", str(out)] if out else [])]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True, cwd="/", env={**os.environ, MARK: str(os.getpid()), **more})  # fmt: skip


MARK = "MEMBENCH_FAULTS"  # in the environment of all that this starts, so that it is found again


def run(words: Sequence[str], out: Path | None = None, **more: str) -> tuple[int, str]:
    process = start(words, out, **more)
    _, errors = process.communicate(timeout=FOREVER)
    return process.returncode, without_progress(errors)


def without_progress(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if " trials, " not in line)


def below_us() -> dict[int, str]:
    """All processes that were started from here and are still there, whoever their parent is now."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={os.getpid()}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
    return found


def children(process: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def orphans(seconds: float = 30) -> int:
    """How many processes are left when they have had time to notice; they are ended then."""
    end = time.monotonic() + seconds
    while (left := below_us()) and time.monotonic() < end:
        time.sleep(0.2)
    for process in left:
        os.kill(process, signal.SIGKILL)
    return len(left)


def records(folder: Path) -> dict[str, Any]:
    """By path, all but what says how long they took."""
    rows = {str(path.relative_to(folder)): json.loads(path.read_text()) for path in folder.rglob("*-s*.json")}
    return {path: {name: value for name, value in row.items() if name != "run"} for path, row in rows.items()}


def compared(folder: Path, good: Path) -> str:
    ours, theirs = records(folder), records(good)
    same = sum(ours.get(path) == row for path, row in theirs.items())
    left = [path for path in folder.rglob(".*") if path.name.endswith(".part")]
    extra = len(ours.keys() - theirs.keys())
    both = [(ours[path], row) for path, row in theirs.items() if path in ours]
    fields = sorted({name for one, other in both for name in one if one[name] != other.get(name)})
    differ = f" (others differ in {', '.join(fields)})" if fields else ""
    return f"{same} of {len(theirs)} records equal{differ}, {extra} too many, {len(left)} temporary files"


def done(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*-s*.json"))


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str]) -> bool:
    """Whether it happened before the process ended."""
    while process.poll() is None:
        if condition():
            return True
        time.sleep(0.01)
    return False


def counted(outcomes: Sequence[str]) -> str:
    return "; ".join(f"{count} x {what}" for what, count in Counter(outcomes).most_common())


class Faults:
    """One method for each fault; each yields rows of the table: what was done, and what was seen."""

    def __init__(self, folder: Path, points: int, kills: int, moments: int, rng: random.Random) -> None:
        self.folder, self.kills, self.moments, self.rng, self.trials = folder, kills, moments, rng, points * SEEDS
        self.sweep = ["sweep", "--model", "aot", "--task", "bigram", "-M", f"H=1:{points // 5}", "-T", "N=4:8",
                      "--protocol", "quick", "-P", "steps=30", "--seeds", str(SEEDS)]  # fmt: skip
        self.good = folder / "uninterrupted"

    def prepare(self) -> None:
        begun = time.monotonic()
        code, errors = run(self.sweep, self.good)
        assert (code, done(self.good)) == (0, self.trials), errors
        self.seconds = time.monotonic() - begun

    def drivers(self) -> Iterator[tuple[str, str]]:
        left, kills, sweeps, files, wrong = 0, 0, 0, 0, []
        while kills < self.kills:
            out, sweeps = self.folder / f"kills{sweeps}", sweeps + 1
            while kills < self.kills:
                driver = start(self.sweep, out)
                try:
                    driver.wait(self.rng.uniform(0, self.seconds))
                    break  # it has finished
                except subprocess.TimeoutExpired:
                    driver.kill()
                driver.communicate()
                kills += 1
                left += orphans()
                files += sum(1 for _ in out.rglob(".*.part"))
            code, errors = run(self.sweep, out)
            seen = compared(out, self.good)
            if code or seen != compared(self.good, self.good):
                wrong.append(f"exit code {code}, {seen}, {errors}")
        yield (
            f"driver killed by SIGKILL at {kills} random moments of {sweeps} sweeps, and continued",
            f"{left} processes left, {files} temporary files left and none after the next run; "
            + ("; ".join(wrong) or f"each time {compared(self.good, self.good)}"),
        )

    def workers(self) -> Iterator[tuple[str, str]]:
        for what, depth in (("workers", 2), ("servers that workers are forked from", 1)):
            out, kills = self.folder / what.split()[0], 0
            driver = start([*self.sweep, "--jobs", "2"], out)
            while driver.poll() is None and kills < 10:
                before = done(out)
                wait_for(lambda out=out, before=before: done(out) > before, driver)
                time.sleep(self.rng.uniform(0, 0.5))
                row = [driver.pid]
                for _ in range(depth):
                    row = [child for process in row for child in children(process)]
                servers = [one for one in row if b"forkserver" in read(f"/proc/{one}/cmdline")]
                if servers:
                    kill(self.rng.choice(servers))
                    kills += 1
            _, errors = driver.communicate()
            failed = [row["error"] for row in records(out).values() if row["status"] == "failed"]
            first = f"exit code {driver.returncode}, {len(failed)} of {done(out)} records failed"
            words = f" (`{failed[0]}`)" if failed else ""
            code, _ = run(self.sweep, out)
            yield (
                f"{kills} {what} killed in one sweep",
                f"{first}{words}, {errors.count('Traceback')} tracebacks; the same command again: exit code {code}, "
                f"{compared(out, self.good)}",
            )

    def signals(self) -> Iterator[tuple[str, str]]:
        moments = [6 * (step / self.moments) ** 2 for step in range(self.moments)]  # more of them early
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            tracebacks, codes, out = 0, [], self.folder / number.name
            for moment in moments:
                process = start(self.sweep, out)
                time.sleep(moment)
                process.send_signal(number)
                _, errors = process.communicate()
                tracebacks += "Traceback" in errors
                codes.append(f"exit code {process.returncode}" if process.returncode >= 0 else "ended by the signal")
            left = orphans()
            yield (
                f"{number.name} at {len(moments)} moments of the first {moments[-1]:.1f} s",
                f"{counted(codes)}; {tracebacks} tracebacks, {left} processes left",
            )

    def disk(self) -> Iterator[tuple[str, str]]:
        with mounted(self.folder / "small", "-t", "tmpfs", "-o", f"size={self.trials * 3}k", "tmpfs") as small:
            code, errors = run(self.sweep, small / "results")
            kept = done(small / "results")
            yield "disk full in a sweep", f"exit code {code}: `{shown(errors, small)}`"
            shutil.copytree(small / "results", self.folder / "saved")
            (small / "rest").write_bytes(bytes(shutil.disk_usage(small).free))
            for words in (
                ["report", str(self.good), "--out", str(small / "report.html")],
                ["leaderboard", str(self.good), "--no-published", "-T", "N=8", "--plot", str(small / "board.png")],
                ["plot", str(self.good), "--x", "N", "--y", "accuracy", "--out", str(small / "figure.svg")],
                ["results", "pack", str(self.good), "--out", str(small / "all.jsonl")],
                ["results", "merge", str(self.good), "--into", str(small / "merged")],
                ["baseline", "write", "--suite", "smoke", "--model", "lookup", "--seeds", "1", "--out",
                 str(self.folder / "measured"), "--baseline", str(small / "baseline.json")],
            ):  # fmt: skip
                code, errors = run(words)
                verb = " ".join(words[: 2 if words[0] in ("results", "baseline") else 1])
                yield f"disk full in `{verb}`", f"exit code {code}: `{shown(errors, small)}`"
        code, _ = run(self.sweep, self.folder / "saved")
        seen = compared(self.folder / "saved", self.good)
        yield "continued elsewhere", f"{kept} records had been kept; exit code {code}, {seen}"

    def read_only(self) -> Iterator[tuple[str, str]]:
        place = self.folder / "frozen"
        shutil.copytree(self.good, place)
        for path in sorted(place.rglob("*-s1.json")):
            path.unlink()
        with mounted(place, "--bind", str(place)):
            subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
            code, errors = run(self.sweep, place)
            yield "folder read-only from the start", f"exit code {code}: `{shown(errors, place)}`"
        with mounted(place, "--bind", str(place)):
            driver, before = start(self.sweep, place), done(place)
            wait_for(lambda: done(place) > before, driver)
            while subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=False).returncode:
                time.sleep(0.01)  # a file is open for writing
            _, errors = driver.communicate()
            told = shown(without_progress(errors), place)
            yield "folder read-only in the middle", f"exit code {driver.returncode}: `{told}`"
        code, _ = run(self.sweep, place)
        yield "writable again", f"exit code {code}, {compared(place, self.good)}"

    def removed(self) -> Iterator[tuple[str, str]]:
        out = self.folder / "removed"
        driver = start(self.sweep, out)
        wait_for(lambda: done(out) >= self.trials / 10, driver)
        shutil.rmtree(out, ignore_errors=True)
        _, errors = driver.communicate()
        code, _ = run(self.sweep, out)
        yield (
            "results folder removed in the middle",
            f"exit code {driver.returncode}: `{shown(without_progress(errors), out)}`; the same command again: "
            f"exit code {code}, {compared(out, self.good)}",
        )

    def clock(self) -> Iterator[tuple[str, str]]:
        source, library = self.folder / "clock.c", self.folder / "clock.so"
        source.write_text("#define _GNU_SOURCE\n" + CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", str(library), str(source), "-ldl"], check=True)
        out = self.folder / "clock"
        driver = start(self.sweep, out, LD_PRELOAD=str(library))
        wait_for(lambda: done(out) >= self.trials / 10, driver)
        driver.kill()
        driver.communicate()
        for path in list(out.rglob("*.json"))[:5]:
            os.utime(path, (4e9, 4e9))
        leftover = out / ".abc-s0.json.abcdefgh.part"
        leftover.touch()
        os.utime(leftover, (4e9, 4e9))
        code, errors = run(self.sweep, out, LD_PRELOAD=str(library))
        yield (
            "clock of all processes going back by an hour each second, driver killed once, files from the future",
            f"exit code {code}, {compared(out, self.good)} {errors}".strip(),
        )

    def together(self) -> Iterator[tuple[str, str]]:
        for count in (2, 3):
            out = self.folder / f"together{count}"
            drivers = [start([*self.sweep, "--jobs", "1"], out) for _ in range(count)]
            wait_for(lambda out=out: done(out) >= self.trials / 10, drivers[0])
            drivers[0].kill()
            codes = [driver.communicate() and driver.returncode for driver in drivers]
            yield (
                f"{count} drivers on one folder at once, the first one killed",
                f"exit codes {', '.join(map(str, codes[1:]))} of the other{'s' * (count > 2)}, "
                f"{compared(out, self.good)}",
            )

    def acceptance(self) -> Iterator[tuple[str, str]]:
        out = self.folder / "thrice"
        for part in (1, 2, 3):
            driver = start(self.sweep, out)
            wait_for(lambda part=part: done(out) >= part * self.trials / 4, driver)
            driver.kill()
            driver.communicate()
        code, _ = run(self.sweep, out)
        yield f"sweep of {self.trials} trials, killed three times", f"exit code {code}, {compared(out, self.good)}"
        parts = [self.folder / f"shard{number}" for number in range(1, SHARDS + 1)]
        codes = [run([*self.sweep, "--shard", f"{n}/{SHARDS}"], part)[0] for n, part in enumerate(parts, start=1)]
        out = self.folder / "merged"
        codes.append(run(["results", "merge", *map(str, parts), "--into", str(out)])[0])
        sizes = ", ".join(str(done(part)) for part in parts)
        yield (
            f"sweep of {self.trials} trials, as {SHARDS} shards ({sizes}), merged",
            f"exit codes {counted(list(map(str, codes)))}, {compared(out, self.good)}",
        )

    def ray(self) -> Iterator[tuple[str, str]]:
        with short_folder() as temporary:
            environment = {"RAY_TMPDIR": temporary, "TMPDIR": temporary, "RAY_ADDRESS": ""}
            code, errors = run([*self.sweep, "--executor", "ray"], self.folder / "ray", **environment)
            seen = compared(self.folder / "ray", self.good)
            yield f"sweep of {self.trials} trials on Ray", f"exit code {code}, {seen} {errors}".strip()
            environment |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
            environment["RAY_worker_niceness"] = "0"
            with subprocess.Popen(
                [sys.executable, "-c", TWO_NODES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                stderr=subprocess.DEVNULL, env={**os.environ, **environment},
            ) as nodes:  # fmt: skip
                assert nodes.stdin is not None
                assert nodes.stdout is not None
                on_ray = [*self.sweep, "--executor", "ray", "--address", nodes.stdout.readline().strip()]
                out = self.folder / "nodes"
                driver = start(on_ray, out, **environment)
                wait_for(lambda: done(out) >= self.trials / 8, driver)
                driver.kill()
                driver.communicate()
                first = done(out)
                driver = start(on_ray, out, **environment)
                wait_for(lambda: done(out) >= self.trials / 3, driver)
                print("kill", file=nodes.stdin, flush=True)
                nodes.stdout.readline()
                at = done(out)
                _, errors = driver.communicate()
                nodes.stdin.close()
            failed = sum(row["status"] == "failed" for row in records(out).values())
            yield (
                f"two Ray nodes: driver killed after {first} trials and continued, one node killed after {at}",
                f"exit code {driver.returncode}, {failed} trials failed, {compared(out, self.good)} "
                f"{without_progress(errors)}".strip(),
            )
            yield "after all of Ray", f"{orphans(60)} processes left"


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def shown(errors: str, folder: Path) -> str:
    return " / ".join(errors.strip().splitlines()).replace(f"{folder}", "FOLDER")


@contextmanager
def mounted(place: Path, *words: str) -> Iterator[Path]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", *words, str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextmanager
def short_folder() -> Iterator[str]:
    """Ray puts sockets below it, whose paths may not be long."""
    with tempfile.TemporaryDirectory(prefix="mb", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


NAMES = ("drivers", "workers", "signals", "disk", "read_only", "removed", "clock", "together", "acceptance", "ray")
NEED_ROOT = ("disk", "read_only")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(NAMES)}; by default all")
    parser.add_argument("--points", type=int, default=40, help="of each sweep, a multiple of 5; five trials each")
    parser.add_argument("--kills", type=int, default=50, help="of the driver")
    parser.add_argument("--moments", type=int, default=20, help="at which each signal is sent")
    parser.add_argument("--seed", type=int, default=0, help="for the moments")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    with tempfile.TemporaryDirectory() as folder:
        faults = Faults(Path(folder), given.points, given.kills, given.moments, random.Random(given.seed))
        if given.faults != ["signals"]:
            faults.prepare()
            load = os.getloadavg()[0]
            print(f"<!-- {faults.trials} trials uninterrupted: {faults.seconds:.0f} s; load {load:.1f} -->")
        print("| fault | what it led to |\n|---|---|")
        for name in given.faults or NAMES:
            if name in NEED_ROOT and os.getuid():
                print(f"{name}: only root can mount what it needs", file=sys.stderr)
                continue
            for what, seen in getattr(faults, name)():
                print(f"| {what} | {seen} |", flush=True)


if __name__ == "__main__":
    main()
