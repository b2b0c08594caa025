"""A pytest plugin: the tests of this process use the library that DEEPPROF_TEST_LIBRARY names, not the built one.

Only tests read the variable; the package itself loads nothing but the file beside its module.
"""

import os
from pathlib import Path

from deepprof.mining import native

found = native.load(Path(os.environ["DEEPPROF_TEST_LIBRARY"]))
assert found is not None
native.library = lambda: found
