"""Bottom layer and runtime: shared nouns, config, run folders, chat rendering, the search episode, encapsulation.

Imports none of the project's other packages, and never imports torch at module level.
"""

__version__ = "0.1.0"
