"""Task files of a world folder (``tasks/{train,dev,test}.jsonl``): rows that are Tasks already."""

import json
from pathlib import Path

from pydantic import ValidationError

from autotools.queries.files import json_rows
from autotools.queries.found import RequestFile
from autotools.schema import Task


def read_tasks(path: str | Path) -> RequestFile:
    """A ``.jsonl`` file of Task rows, each checked; its ids must differ.

    Raises DataError if the file cannot be read, or has lines but not one JSON object.
    """
    path = Path(path)
    out = RequestFile(source=f"{path.parent.name}/{path.name}")
    for line, row in json_rows(path, out):
        try:
            # as text: refuses what cannot be written and read again (NaN, lone surrogates, hundreds of brackets)
            task = Task.model_validate_json(json.dumps(row, allow_nan=False))
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            out.reject(line, "not a task", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        except (ValueError, RecursionError) as error:
            out.reject(line, "not a task", error)
        else:
            if not task.query.strip():
                out.reject(line, "request is not text", task.id)
            elif not task.targets:
                out.reject(line, "request without targets", task.id)
            else:
                out.keep(line, task)
    return out
