"""Load on served models: `locust -f loadtest/locustfile.py --host 127.0.0.1:8001`.

TritonUser calls over gRPC with tritonkit's client, RestUser over Triton's HTTP endpoint. Every answer
is checked; a run that misses a limit of thresholds.yaml ends with exit code 1. docs/loadtest.md says more.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gevent
import rest
from locust import LoadTestShape, User, events, runners
from locust.exception import StopUser
from locust.runners import MasterRunner, WorkerRunner
from running import RUN, reach
from settings import add_options, read_settings

from tritonkit.errors import ServerUnavailable, TritonkitError, UsageError
from tritonkit.perf.load import judge, users_at, workloads
from tritonkit.perf.load.kinds import SEQUENCE, answers_to
from tritonkit.repository.modelspec import find_root
from tritonkit.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tritonkit.perf.load.workload import Outputs

try:  # the project that Locust was started in; by name from elsewhere, the clone that this file is in
    ROOT = find_root()
except UsageError:
    ROOT = Path(__file__).absolute().parent.parent

# A worker that makes its requests does not answer for seconds: Locust's 3 s took it for lost.
runners.HEARTBEAT_LIVENESS = 30
FAILED = "tritonkit_failed"
PAUSE_S = 1.0  # before a user calls a server again that was not there
SHAPED_S = 60  # duration of a shape where none was given


def _task(model: str) -> Callable[[Any], None]:
    """A Locust task that calls one model, under the model's name."""

    def task(user: Any) -> None:
        user.call(model)

    task.__name__ = model
    return task


class WrongAnswer(Exception):
    """An answer that differs from the known right one."""


class ModelUser(User):
    """Calls the chosen models one after the other, with a pause between."""

    abstract = True
    protocol: ClassVar[str]
    tasks = [_task(model) for model in workloads.SHIPPED]  # `_start` sets those that were chosen

    def wait_time(self) -> float:
        """Seconds of pause: half to one and a half of the think time."""
        return random.uniform(0.5, 1.5) * RUN.think_time_s  # noqa: S311 - a pause, not a secret

    def call(self, model: str) -> None:
        """Send one request, check its answer, and report both to Locust."""
        if RUN.failed:
            raise StopUser
        item = random.choice(RUN.items[model])  # noqa: S311
        answers: list[Outputs] = []
        failure: Exception | None = None
        at, started = time.time(), time.perf_counter()
        try:
            answers = self.send(item)
        except TritonkitError as error:
            failure = error
        took_ms = 1e3 * (time.perf_counter() - started)
        if failure is None:
            wrong = [words for outputs in answers if (words := item.request.check(outputs))]
            if wrong or not answers:
                failure = WrongAnswer(wrong[0] if wrong else "a stream without a reply")
        self.environment.events.request.fire(
            request_type=self.protocol,
            name=model,
            response_time=took_ms,
            response_length=sum(rest.size_of(a) for reply in answers for a in reply.values()),
            exception=failure,
            context=self.context(),
            response=None,
            start_time=at,
        )
        if RUN.is_gone(isinstance(failure, ServerUnavailable)):
            _fail(self.environment, failure)
        if isinstance(failure, ServerUnavailable):
            gevent.sleep(PAUSE_S)

    def send(self, item: Any) -> list[Outputs]:
        """One request over this kind of user's protocol: its answers."""
        raise TypeError(f"{type(self).__name__} has no protocol")


class TritonUser(ModelUser):
    """A user over gRPC; all users of a process share one client, as the threads of a service would."""

    protocol = "grpc"

    def on_start(self) -> None:
        """No sequence is open yet."""
        self.sequences: dict[str, tuple[Any, int]] = {}

    def on_stop(self) -> None:
        """End the sequences, so that their places at the server are free."""
        for sequence, _ in self.sequences.values():
            with suppress(TritonkitError):
                sequence.__exit__(None, None, None)

    def send(self, item: Any) -> list[Outputs]:
        """One call of tritonkit's client, all replies of a stream, or the next call of a sequence."""
        if item.kind == SEQUENCE:
            return [self._in_sequence(item)]
        return answers_to(RUN.client, item.model, item.request.inputs, item.kind)

    def _in_sequence(self, item: Any) -> Outputs:
        """The next call of this user's own sequence; a new one after its last call, or a failure."""
        sequence, left = self.sequences.pop(item.model, (None, RUN.settings.sequence_calls))
        if sequence is None:
            sequence = RUN.client.model(item.model).sequence().__enter__()
        try:
            outputs: Outputs = sequence.predict(inputs=item.request.inputs, last=left == 1).outputs
        except BaseException as error:
            with suppress(TritonkitError):
                sequence.__exit__(type(error), error, None)
            raise
        if left > 1:
            self.sequences[item.model] = sequence, left - 1
        return outputs


class RestUser(ModelUser):
    """A user over HTTP/REST with binary tensors and its own connection, for comparison."""

    protocol = "http"

    def on_start(self) -> None:
        """Open the connection; a run whose preparation failed has none."""
        if not RUN.failed:
            self.http = rest.connect(RUN.settings.http_address)

    def on_stop(self) -> None:
        """Close it."""
        if hasattr(self, "http"):
            self.http.close()

    def send(self, item: Any) -> list[Outputs]:
        """One POST of the request as it was encoded beforehand."""
        return [rest.infer(self.http, item.rest)]


class Shape(LoadTestShape):
    """The number of users at each moment, by --shape, --users, --spawn-rate and --run-time."""

    use_common_options = True

    def tick(self) -> tuple[int, float] | None:
        """Users and how many may start in a second; None at the end."""
        options = self.runner.environment.parsed_options
        steady = options.shape == "steady"
        most = options.num_users or 1
        duration_s = options.run_time or (None if steady else SHAPED_S)
        # Locust asks once a second: what is right in the middle of that second is right for it.
        count = users_at(options.shape, RUN.second() + 0.5, most, duration_s)
        return None if count is None else (count, (options.spawn_rate or 1) if steady else most)


@events.init_command_line_parser.add_listener
def _options(parser: Any, **_: Any) -> None:
    add_options(parser, list(workloads.SHIPPED))


@events.init.add_listener
def _init(environment: Any, runner: Any, **_: Any) -> None:
    """Check what can be checked before anything is sent; one line and an exit code if it is wrong."""
    hooks = environment.events
    hooks.test_start.add_listener(_start)
    hooks.test_stopping.add_listener(lambda **_: RUN.end())
    hooks.request.add_listener(RUN.record)
    hooks.reset_stats.add_listener(lambda **_: RUN.reset())
    hooks.spawning_complete.add_listener(lambda **_: RUN.reset() if environment.reset_stats else None)
    if isinstance(runner, WorkerRunner):
        hooks.report_to_master.add_listener(RUN.give)
        return
    hooks.worker_report.add_listener(RUN.take)
    hooks.quitting.add_listener(_quit)
    if isinstance(runner, MasterRunner):
        runner.register_message(FAILED, lambda msg, **_: _end(environment, **msg.data))
    options = environment.parsed_options
    try:
        settings = read_settings(options, environment.host, _known())
        if options.headless or options.autostart:
            reach(settings, _protocols(environment))
    except TritonkitError as error:
        print(f"error: {_line(error)}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)


def _start(environment: Any, **_: Any) -> None:
    """Make the requests, and ask the server for the answers that are known beforehand."""
    RUN.failed = ""
    try:
        settings = read_settings(environment.parsed_options, environment.host, _known())
        for kind in environment.user_classes:
            kind.tasks = [_task(m) for m, weight in settings.weights.items() for _ in range(weight)]
        if isinstance(environment.runner, MasterRunner):
            RUN.settings = settings
        else:
            RUN.prepare(ROOT, settings, _protocols(environment))
    except TritonkitError as error:
        _fail(environment, error)
    RUN.begin()


def _fail(environment: Any, error: Any) -> None:
    """End the run because of an error: a worker reports to the master, which ends all of them."""
    if isinstance(environment.runner, WorkerRunner):
        if not RUN.failed:
            RUN.failed = _line(error)
            facts = {"text": RUN.failed, "code": error.exit_code}
            environment.runner.send_message(FAILED, facts)
    else:
        _end(environment, _line(error), error.exit_code)


def _end(environment: Any, text: str, code: int) -> None:
    """Say once why a run failed, and stop it."""
    if RUN.failed:
        return
    RUN.failed = text
    if environment.web_ui is None:
        print(f"error: {text}", file=sys.stderr, flush=True)
    else:  # whose page shows the log
        logging.getLogger(__name__).error(text)
    # Not directly: the caller may be one of the greenlets to end.
    gevent.spawn(_stop, environment, code)


def _stop(environment: Any, code: int) -> None:
    """Stop a run that failed; without a web page, Locust ends."""
    environment.process_exit_code = code
    if environment.parsed_options.headless:
        environment.runner.quit()
    else:
        environment.runner.stop()


def _quit(environment: Any, **_: Any) -> None:
    """The outcome of the last run: a line for each missed limit, the exit code, the report."""
    if RUN.failed or not RUN.began:
        return
    report = RUN.report()
    missed = judge(report, RUN.settings.limits)
    for line in missed:
        print(f"missed: {printable(line, lines=False)}", file=sys.stderr)
    environment.process_exit_code = 1 if missed else 0
    if environment.parsed_options.report_json:
        facts = report.to_dict() | {"holds": not missed, "missed": missed, "began_at": RUN.began}
        file = Path(environment.parsed_options.report_json)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _known() -> list[str]:
    return sorted(file.parent.name for file in (ROOT / "models").glob("*/model.yaml"))


def _protocols(environment: Any) -> set[str]:
    return {kind.protocol for kind in environment.user_classes}


def _line(error: TritonkitError) -> str:
    """All that an error says, in one line."""
    parts = [f"{error.where}: {error.found}"]
    parts += [f"wanted: {error.wanted}"] if error.wanted else []
    parts += [f"do: {error.todo}"] if error.todo else []
    return printable(" ".join("; ".join(parts).split()), lines=False)
