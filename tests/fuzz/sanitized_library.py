"""A pytest plugin: the tests of this process use the libraries that the environment names, not the built ones.

DEEPPROF_TEST_LIBRARY is the miner's, DEEPPROF_TEST_SCANNER the scanner of Kineto events.

Only tests read the variable; the package itself loads nothing but the file beside its module.
"""

import os
from pathlib import Path

from deepprof.collectors.importers.kineto import native as kineto_native
from deepprof.mining import native

for module, variable in ((native, "DEEPPROF_TEST_LIBRARY"), (kineto_native, "DEEPPROF_TEST_SCANNER")):
    if variable in os.environ:
        found = module.load(Path(os.environ[variable]))
        assert found is not None
        module.library = lambda found=found: found
