"""Runs at the start of every Python process of a job, whatever its version: its syntax is valid in all versions."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

if __name__ == "sitecustomize" and sys.version_info >= (3, 8):
    SPACE = dict(globals(), __name__="_deepprof_watch", __file__=os.path.join(HERE, "watch.py"))
    with open(SPACE["__file__"], "rb") as source:
        exec(compile(source.read(), source.name, "exec"), SPACE)  # noqa: S102  # importing it would add a module
    SPACE["begin"]()
elif __name__ == "sitecustomize":  # too old for torch: only the sitecustomize that this one shadows matters
    sys.path[:] = [path for path in sys.path if os.path.normpath(path) != HERE]
    OURS = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError:
        sys.modules[__name__] = OURS
