"""The coverage-guided fuzzer: ``python -m tests.fuzz TARGET --runs N [--corpus DIR] [--seed S]``.

Starts from the seeds in tests/fuzz/corpus/TARGET; what covers something new is kept in DIR, or in
.cache/fuzz. A finding ends it: the bytes that made it are in .cache/fuzz; the smallest readable case
of it goes into findings.yaml.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import atheris

# Before the others: Numba cannot compile what is instrumented.
from extender.kernels.warm import compile_all

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path(".cache/fuzz")
#: Bytes of an input: longer ones edit no more, and the raw targets find their faults with less.
MOST_BYTES = 512
#: Seconds and MiB that one input may take: a hang, or memory without bound, is a finding.
TIMEOUT, MEMORY = 60, 2048


def main() -> None:
    with atheris.instrument_imports(include=["extender", "plugins", "tests.fuzz"]):
        from tests.fuzz.targets import TARGETS
    compile_all()
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--runs", type=int, default=10_000, help="executions (not seconds)")
    parser.add_argument("--corpus", type=Path, help="where to keep what covers something new")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    # The first directory is written to, and never the seeds.
    corpus = given.corpus or FOUND / "corpus" / given.target
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = CORPUS / given.target
    atheris.Setup(
        [
            sys.argv[0],
            f"-runs={given.runs}",
            f"-seed={given.seed}",
            "-len_control=0",  # what a few bytes make of a good object is soon known
            f"-max_len={MOST_BYTES}",
            f"-timeout={TIMEOUT}",
            f"-rss_limit_mb={MEMORY}",
            f"-artifact_prefix={FOUND}/{given.target}-",
            "-print_final_stats=1",
            str(corpus),
            *([str(seeds)] if seeds.is_dir() else []),
        ],
        TARGETS[given.target],
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
