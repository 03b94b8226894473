"""The entry point of AWS Lambda: `handler(event, context)`. The model is opened once, when this file is imported."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from awslambdaric.lambda_runtime_exception import FaultException
from tritonkit_lambda.errors import Failed, StartError
from tritonkit_lambda.events import answer
from tritonkit_lambda.start import start

# FaultException is the one that the runtime client hands on as its words alone; it adds a stack to any other.
try:
    FUNCTION = start(Path(__file__).resolve().parent)
except StartError as error:
    raise FaultException("Function.StartError", str(error), []) from None


def handler(event: Any, context: Any) -> Any:
    """The answer to one event: a request of the Open Inference Protocol, or HTTP with one in its body.

    A failure of the model is an error of the function where it was invoked directly, so that Lambda counts it and
    tries asynchronous events again.
    """
    try:
        return answer(FUNCTION, event)
    except Failed as error:
        raise FaultException("Function.Failed", str(error), []) from None
    except Exception:  # a fault of this file's own: its stack is for the log, not for the caller
        logging.exception("an event was not answered")
        raise FaultException("Function.Failed", "the function's log says why", []) from None
