"""Where the original files of the data sets lie below a folder of sources, as their repositories name them."""

STABLETOOLBENCH = "stabletoolbench/solvable_queries/test_instruction"
TOOLLENS = "colt/datasets/ToolLens"
ANYTOOLBENCH = "anytoolbench"
