"""The blocking transport in a program that gevent has patched, as Locust does."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

from tritonkit.testing import FakeModel

PROGRAM = textwrap.dedent("""
    from gevent import monkey

    monkey.patch_all()
    import sys
    import time

    import gevent

    from tritonkit.client import Adaptive, Client
    from tritonkit.errors import DeadlineExceeded

    for batching in (None, Adaptive()):
        with Client(sys.argv[1], timeout_s=20, batching=batching) as client:
            model = client.model("digits")

            def caller(own):
                return [model.predict(image=b"x" * own)["score"][0, 0] == own for _ in range(20)]

            greenlets = [gevent.spawn(caller, own) for own in range(30)]
            gevent.joinall(greenlets, raise_error=True)
            assert all(all(greenlet.value) for greenlet in greenlets)
            # Looks at an idle connection, then waits for nothing that comes.
            time.sleep(0.1)
            model.predict(image=b"1")
            slow = client.model("slow")
            killed = gevent.spawn(slow.predict, image=b"1")
            gevent.sleep(0.05)
            killed.kill()
            try:
                slow.predict(image=b"1", timeout_s=0.2)
            except DeadlineExceeded:
                print("in time")
            model.predict(image=b"1")
""")


def test_greenlets_share_a_client(serve: Any, models: dict[str, FakeModel]) -> None:
    """Thirty of them call, one is killed in its call, a deadline passes: nobody waits for ever."""
    served = models | {"slow": FakeModel(models["digits"].inputs, models["digits"].outputs, _slow)}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with serve(served) as address:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, address],
            env=environment, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["in time", "in time", ""]


def _slow(given: Any) -> Any:
    import time

    time.sleep(1.0)
    return {"label": [["x"]] * len(given["image"]), "score": [[1.0]] * len(given["image"])}
