"""A pytest plugin: the tests of this process use the libraries that the environment names, not the built ones.

DEEPPROF_TEST_LIBRARY is the miner's, DEEPPROF_TEST_SCANNER the scanner of Kineto events,
DEEPPROF_TEST_UNPICKLER the reader of pickles.

Only tests read the variable; the package itself loads nothing but the file next to its module.
"""

import os
from pathlib import Path

from deepprof.collectors.importers.kineto import native as kineto_native
from deepprof.collectors.importers.torch_snapshot import unpickling
from deepprof.mining import native

LIBRARIES = (
    (native, "DEEPPROF_TEST_LIBRARY"),
    (kineto_native, "DEEPPROF_TEST_SCANNER"),
    (unpickling, "DEEPPROF_TEST_UNPICKLER"),
)
for module, variable in LIBRARIES:
    if variable in os.environ:
        found = module.load(Path(os.environ[variable]))
        assert found is not None
        module.library = lambda found=found: found
