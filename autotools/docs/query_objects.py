"""Reader of the API objects inside ToolBench and StableToolBench query files: the ``api_list`` of each query."""

from pathlib import Path

from autotools.docs.corpus import object_specs
from autotools.docs.files import first_keys, read_json, suffix_of
from autotools.docs.reading import Reading, as_dict
from autotools.errors import DataError

FORM = "query_objects"


def matches(path: Path, head: str) -> bool:
    """A JSON list of queries whose candidates are whole API objects (other suites list names there)."""
    whole = '"category_name"' in head and '"api_description"' in head
    return suffix_of(path) == ".json" and head.lstrip().startswith("[") and "api_list" in first_keys(head) and whole


def read(path: Path) -> Reading:
    """One ToolSpec per distinct API object; the same object in another query is a repeat.

    Lines are numbers of queries; a query without an ``api_list`` is a reject. ``documents`` counts queries.
    Raises DataError if the file is no JSON list.
    """
    queries = read_json(path)
    if not isinstance(queries, list):
        raise DataError(f"{path}: not a list of queries")
    reading = Reading(source=path.name, form=FORM, documents=len(queries))
    for number, query in enumerate(queries, start=1):
        apis = as_dict(query).get("api_list")
        if not isinstance(apis, list):
            reading.reject(number, "query without a list of APIs", query)
            continue
        for api in apis:
            reading.attempt(number, object_specs, api)
    return reading
