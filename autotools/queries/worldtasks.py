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
            task = Task.model_validate(row)
            json.dumps(task.model_dump(mode="json"), allow_nan=False)  # what is kept can be written again
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            out.reject(line, "not a task", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        except (ValueError, RecursionError) as error:
            out.reject(line, "cannot be written as JSON", error)
        else:
            if not task.query.strip():
                out.reject(line, "request is not text", task.id)
            elif not task.targets:
                out.reject(line, "request without targets", task.id)
            else:
                out.keep(line, task)
    return out
