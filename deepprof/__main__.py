"""`python -m deepprof`."""

import sys

from deepprof.commands import main

if __name__ == "__main__":
    sys.exit(main())
