"""Child process that runs model-written programs."""
