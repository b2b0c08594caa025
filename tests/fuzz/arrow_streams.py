"""A coverage-guided fuzzer of the wire's door, for as long as one likes:

    pip install -e .[test]
    python -m tests.fuzz.arrow_streams CORPUS -max_total_time=600

Any bytes in the place of a table are refused with a WireError, or make a batch that a trace can hold. An input begins
with the number of its table; memory is bounded, so that a size that is believed ends the process. libFuzzer's options
follow the folder CORPUS; a failing input is written to a file.
"""

import sys
from pathlib import Path


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=["deepprof.live.wire"]):
        from tests.fuzz.arrow_trial import limit_memory, seeds, try_bytes

    corpus = Path(sys.argv[1])
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(seeds()):
        try_bytes(data)
        (corpus / f"seed-{number}").write_bytes(data)
    atheris.Setup(sys.argv, try_bytes)
    limit_memory()
    atheris.Fuzz()


if __name__ == "__main__":
    main()
