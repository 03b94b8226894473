"""`tritonkit openai` before a Triton that dies."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.openai.running import asked, running
from tests.server.models import write_repository
from tests.server.openai_models import PARROT
from tests.waiting import PATIENCE_S
from tritonkit.errors import ServerError
from tritonkit.serve import serve


def test_a_server_that_dies_is_an_error_for_its_callers(tmp_path: Path) -> None:
    """In the middle of a stream an event, afterwards a status; no traceback (see `running`)."""
    repository, done = write_repository(tmp_path / "repository", {"parrot": PARROT}), False
    with (
        contextlib.suppress(ServerError),
        serve(repository, grpc_port=0, http_port=0, metrics_port=0, restarts=0) as endpoint,
        running(tmp_path, "--address", endpoint.grpc) as url,
        openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE_S) as client,
    ):
        create: Any = client.completions.create
        stream = create(model="parrot", prompt=f"SAY ENDLESS {tmp_path / 'never'}", stream=True)
        next(stream)
        os.kill(endpoint.pid, signal.SIGKILL)
        with pytest.raises(openai.APIError) as lost:
            list(stream)
        assert (lost.value.code, type(lost.value)) == ("unavailable", openai.APIError)
        with pytest.raises(openai.InternalServerError) as after:
            create(model="parrot", prompt="SAY a")
        assert after.value.status_code == 503
        assert asked(f"{url.removesuffix('/v1')}/health")[0] == 503
        done = True
    assert done  # no error of the server's end has hidden a failure above
