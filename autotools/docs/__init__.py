"""The one home of tool-documentation readers; each module reads one form into ToolSpecs."""

AUTH_NOTE = "needs an API key"
"""Start of the note that readers put on a tool whose calls must carry a key (the key itself is never stored)."""
