"""A coverage-guided fuzzer of `Matcher.restore`, for as long as one likes:

    pip install -e .[test]
    python -m tests.fuzz.restoring CORPUS -max_total_time=600

Any bytes are refused with a ValueError, or make a matcher that works. The checksum is set right after every mutation,
so that it is no wall. libFuzzer's options follow the folder CORPUS; a failing input is written to a file.
"""

import sys
from pathlib import Path


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=["deepprof.mining"]):
        from tests.fuzz.restoring_trial import HEAD, sealed, seeds, try_bytes

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        return sealed(atheris.Mutate(data[HEAD.size :], max(1, most - HEAD.size)))

    corpus = Path(sys.argv[1])
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(data)
    atheris.Setup(sys.argv, try_bytes, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
