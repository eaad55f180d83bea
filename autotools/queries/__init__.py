"""Readers of request files with known target tools; each module reads one family into Tasks.

ToolBench, StableToolBench and AnyToolBench (``toolbench``), COLT (``colt``), RestBench and AutoTools-Eval
(``restbench``), task files of a world folder (``worldtasks``). Targets are ToolIds made from the names in the file, as
the documentation readers make them. The readers know no corpus: ``sort_out`` sets aside requests with targets that it
does not hold, ``dangling`` lists those targets. Every record is either a task or a reject: kept + rejected = read.
"""

from autotools.queries.colt import read_colt
from autotools.queries.found import Dangling, RequestFile, dangling, normalised, once, sort_out
from autotools.queries.restbench import read_autotools, read_restbench
from autotools.queries.toolbench import read_anytoolbench, read_toolbench
from autotools.queries.worldtasks import read_tasks

__all__ = [
    "Dangling",
    "RequestFile",
    "dangling",
    "normalised",
    "once",
    "read_anytoolbench",
    "read_autotools",
    "read_colt",
    "read_restbench",
    "read_tasks",
    "read_toolbench",
    "sort_out",
]
