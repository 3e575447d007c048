"""The one error for what a person must fix in their call or their set-up.

Problems of the data are findings, not exceptions (see `model.Finding`). A bug keeps its traceback.
"""


class KbenchError(Exception):
    """One line for a person: what is wrong, where, and what to do. Printed without a traceback.

    The exit code that goes with it is 2.
    """


class EngineError(KbenchError):
    """The container engine doesn't answer, or stopped answering."""
