import json

from deepprof.web.schema_file import FILE, document_types, schema_text


def test_the_file_is_that_of_the_documents():
    assert FILE.read_text(encoding="utf-8") == schema_text(), "run python -m deepprof.web.schema_file"


def test_all_fields_are_required():
    definitions = json.loads(schema_text())["$defs"]
    assert all(schema["required"] == list(schema["properties"]) for schema in definitions.values())


def test_the_documents_of_all_modules_are_in_it():
    assert {"SessionDocument", "TimelineDocument", "FlameDocument"} <= {struct.__name__ for struct in document_types()}
