"""Reading a document made by hand."""

import json

import pytest

from deepprof.collectors.importers.kineto import Kineto


@pytest.fixture
def read(tmp_path):
    def read_document(events, details=False, shapes=True, **header):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": events}))
        return Kineto().read(path, details=details, shapes=shapes)

    return read_document
