"""What a user can be told when an analysis cannot be done. Imports nothing, so that the command line starts fast."""


class RunError(ValueError):
    """A run directory cannot be analysed; the text says which file and why."""


class SparkError(RuntimeError):
    """Spark cannot be started, or cannot do its work; one sentence says why."""


class MasterError(ValueError):
    """What was given as the master of a Spark cluster is none; the text says what is allowed."""
