"""The blocking transport in a program that gevent has patched, as Locust does."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
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


OTHER_WIRE = textwrap.dedent("""
    import sys

    from gevent import monkey

    patch = sys.argv[2]
    if patch != "later":
        eval(f"monkey.{patch}")
    import asyncio

    from tritonkit.client import AsyncClient, Client
    from tritonkit.errors import UsageError


    def call():
        try:
            with Client(sys.argv[1], wire="grpcio", timeout_s=30) as client:
                if patch == "later":
                    client.model("digits")
                    monkey.patch_all()
                print(client.model("digits").predict(image=b"1")["score"][0, 0])
        except UsageError as error:
            print("gevent" in str(error) and "http2" in str(error))


    async def call_in_task():
        try:
            async with AsyncClient(sys.argv[1], wire="grpcio", timeout_s=30) as client:
                reply = await (await client.model("digits")).predict(image=b"1")
                print(reply["score"][0, 0])
        except UsageError as error:
            print("gevent" in str(error) and "http2" in str(error))


    call()
    if patch != "later":
        asyncio.run(call_in_task())
""")


def test_grpcs_own_library_is_refused_there(serve: Any, models: dict[str, FakeModel]) -> None:
    """It would wait for ever, past every deadline: an error that names gevent, or an answer."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with serve(models) as address:
        programs = {
            patch: subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", OTHER_WIRE, address, patch],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for patch in ("patch_all()", "patch_all(thread=False)", "later")
        }
        outputs = {patch: program.communicate(timeout=60) for patch, program in programs.items()}
    shown = {patch: out.split() for patch, (out, _) in outputs.items()}
    assert shown == {"patch_all()": ["True", "True"], "patch_all(thread=False)": ["True", "1.0"], "later": ["True"]}, (
        outputs
    )


def test_greenlets_share_a_client(serve: Any, models: dict[str, FakeModel]) -> None:
    """Thirty of them call, one is killed in its call, a deadline passes: nobody waits for ever."""
    served = models | {"slow": FakeModel(models["digits"].inputs, models["digits"].outputs, _slow)}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with serve(served) as address:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, address], env=environment, capture_output=True, text=True, timeout=100
        )
        _OVER.set()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["in time", "in time", ""]


_OVER = threading.Event()


def _slow(inputs: Any) -> Any:
    _OVER.wait(60)
    return {"label": [["x"]] * len(inputs["image"]), "score": [[1.0]] * len(inputs["image"])}
