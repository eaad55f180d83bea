"""Typed errors. Each names the boundary that failed; the policy's own faults are observations, never exceptions."""


class AutoToolsError(Exception):
    """Base of every error this project raises on purpose. Entry scripts print it as one line and exit with 2."""


class ConfigError(AutoToolsError):
    """A config file or command line is wrong (unknown key, wrong type, bad combination)."""


class RunFolderError(AutoToolsError):
    """A run folder is in use, incomplete, or was made with another config."""


class DataError(AutoToolsError):
    """An input file is missing, empty, or malformed as a whole (single bad records are quarantined instead)."""


class ModelError(DataError):
    """A model folder (or a hub name) holds no model that can be loaded: missing, unfinished, or damaged."""


class WriteError(AutoToolsError):
    """A file cannot be written where it was asked for (full disk, read-only or missing folder)."""


class ToolIdError(AutoToolsError, ValueError):
    """A text is not a tool id of the form ``category.tool.api``."""


class ToolDocError(AutoToolsError):
    """A tool document cannot be read or turned into a ToolSpec."""


class VerificationError(AutoToolsError):
    """A generated function or program could not be checked (the checker broke; a failed check is a result)."""


class SandboxError(AutoToolsError):
    """The child process that runs model-written programs could not do its work."""


class RetrieverError(AutoToolsError):
    """The search engine failed. Never turned into an empty result: the rollout is dropped and counted."""


class UnknownCategoryError(RetrieverError):
    """A search asked for a category that the corpus does not have. The message lists close names."""


class RetrieverUnavailable(RetrieverError):
    """A search server did not answer within the allowed attempts or time. Nothing is known about the query."""


class ProviderError(AutoToolsError):
    """A language-model endpoint failed."""


class ToolWorldError(AutoToolsError):
    """The embedded tool world could not be built or served."""
