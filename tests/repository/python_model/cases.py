"""Models of Triton's Python backend with what a test asks of them, for a real server and for this process."""

from __future__ import annotations

__all__ = ["CONFIGS", "MODELS"]

VECTOR = """backend: "python"
max_batch_size: {batch}
input {{ name: "x" data_type: TYPE_FP32 dims: [2] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [2] }}
instance_group {{ kind: KIND_CPU count: 1 }}
"""
TEXT = """backend: "python"
max_batch_size: 4
input { name: "text" data_type: TYPE_STRING dims: [1] }
output [ { name: "upper" data_type: TYPE_STRING dims: [1] }, { name: "length" data_type: TYPE_INT32 dims: [1] } ]
parameters { key: "mark" value { string_value: "!" } }
instance_group { kind: KIND_CPU count: 1 }
"""
COUNT = """backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input { name: "x" data_type: TYPE_FP32 dims: [2] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
instance_group { kind: KIND_CPU count: 1 }
"""
SEQUENCE = (
    VECTOR.format(batch=2)
    + """sequence_batching {
  control_input [
    { name: "start" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } },
    { name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  ]
}
"""
)

HEAD = """import asyncio, json, threading
import numpy as np
import triton_python_backend_utils as pb_utils

def given(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

def answer(**arrays):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in arrays.items()])

class TritonPythonModel:
"""

EACH = HEAD + "    def execute(self, requests):\n        return [{each} for r in requests]\n"


def each(expression: str) -> str:
    """A model that answers each request `r` with an expression."""
    return EACH.format(each=expression)


CONFIGS = {
    "texts": TEXT,
    "counts": COUNT,
    "threads": COUNT,
    "returns": COUNT,
    "sequences": SEQUENCE,
    "flat": VECTOR.format(batch=0),
}
"""Configurations of models that are not VECTOR with batches of up to 4."""

MODELS = {
    "double": each('answer(y=given(r, "x") * 2)'),
    "flat": each('answer(y=given(r, "x") + 1)'),
    "strided": each('answer(y=given(r, "x")[:, ::-1])'),
    "wide": each('answer(y=given(r, "x").astype(np.float64))'),
    "more": each('answer(y=given(r, "x"), z=given(r, "x"))'),
    "less": each("answer()"),
    "refuses": each(
        'pb_utils.InferenceResponse(error=pb_utils.TritonError("too dark", pb_utils.TritonError.INVALID_ARG))'
    ),
    "fails": each("1 / 0"),
    "one": HEAD + '    def execute(self, requests):\n        return [answer(y=given(requests[0], "x"))] * 2\n',
    "tuple": HEAD + '    def execute(self, requests):\n        return (answer(y=given(requests[0], "x")),)\n',
    "number": HEAD + "    def execute(self, requests):\n        return [7]\n",
    "without": HEAD + "    def run(self, requests): ...\n",
    "raises": each('(_ for _ in ()).throw(pb_utils.TritonModelException("not now"))'),
    "unnamed": each('pb_utils.InferenceResponse([pb_utils.Tensor("", given(r, "x"))])'),
    "asks": each("answer(y=np.float32([[json.loads(r.parameters())['k'], len(r.request_id())]]))"),
    "wants": each("answer(y=np.float32([[len(r.requested_output_names()), r.flags()]]))"),
    "texts": HEAD
    + """    def initialize(self, args):
        self.mark = json.loads(args["model_config"])["parameters"]["mark"]["string_value"]

    def execute(self, requests):
        return [
            answer(
                upper=np.array([[t.decode().upper() + self.mark] for t in given(r, "text").ravel()], object),
                length=np.array([[len(t)] for t in given(r, "text").ravel()], np.int32),
            )
            for r in requests
        ]
""",
    "counts": HEAD
    + """    def execute(self, requests):
        for request in requests:
            many, fail = given(request, "x").tolist()
            sender = request.get_response_sender()
            for number in range(int(many)):
                if number == fail:
                    sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no more")))
                    break
                sender.send(answer(y=np.float32([number])))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
    "threads": HEAD
    + """    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.reply, args=(request.get_response_sender(), given(request, "x"))).start()

    def reply(self, sender, x):
        sender.send(answer(y=x[:1]))
        sender.send(answer(y=x[1:]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
    "returns": HEAD + '    def execute(self, requests):\n        return [answer(y=given(requests[0], "x")[:1])]\n',
    "sequences": HEAD
    + """    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for r in requests:
            key = int(given(r, "id").item())
            self.sums[key] = (0 if given(r, "start").item() else self.sums[key]) + given(r, "x")
            answers.append(answer(y=self.sums[key].astype(np.float32)))
        return answers
""",
    "calls": HEAD
    + """    def execute(self, requests):
        answers = []
        for r in requests:
            called = pb_utils.InferenceRequest(
                model_name="double", requested_output_names=["y"], inputs=[pb_utils.Tensor("x", given(r, "x"))]
            ).exec()
            if called.has_error():
                raise pb_utils.TritonModelException(called.error().message())
            answers.append(answer(y=pb_utils.get_output_tensor_by_name(called, "y").as_numpy() + 1))
        return answers
""",
    "calls_later": HEAD
    + """    async def execute(self, requests):
        x = given(requests[0], "x")
        calls = [
            pb_utils.InferenceRequest(
                model_name="double", requested_output_names=["y"], inputs=[pb_utils.Tensor("x", x + n)]
            ).async_exec()
            for n in range(2)
        ]
        one, other = await asyncio.gather(*calls)
        made = [pb_utils.get_output_tensor_by_name(r, "y").as_numpy() for r in (one, other)]
        return [answer(y=sum(made))]
""",
    "calls_refused": HEAD
    + """    def execute(self, requests):
        called = pb_utils.InferenceRequest(
            model_name="refuses", requested_output_names=["y"], inputs=[pb_utils.Tensor("x", given(requests[0], "x"))]
        ).exec()
        return [pb_utils.InferenceResponse(error=called.error())]
""",
    "calls_nobody": HEAD
    + """    def execute(self, requests):
        called = pb_utils.InferenceRequest(
            model_name="nobody", requested_output_names=["y"], inputs=[pb_utils.Tensor("x", given(requests[0], "x"))]
        ).exec()
        return [pb_utils.InferenceResponse(error=called.error())]
""",
    "calls_stream": HEAD
    + """    def execute(self, requests):
        called = pb_utils.InferenceRequest(
            model_name="counts", requested_output_names=["y"], inputs=[pb_utils.Tensor("x", given(requests[0], "x")[0])]
        ).exec(decoupled=True)
        made = [pb_utils.get_output_tensor_by_name(r, "y").as_numpy() for r in called if r.output_tensors()]
        return [answer(y=np.float32([[len(made), np.sum(made)]]))]
""",
    "dlpack": HEAD
    + """    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(r, "x") for r in requests]
        copies = [pb_utils.Tensor.from_dlpack("y", tensor.to_dlpack()) for tensor in tensors]
        return [pb_utils.InferenceResponse([copy]) for copy in copies]
""",
    "late": HEAD
    + """    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(answer(y=given(request, "x")), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            try:
                sender.send(answer(y=given(request, "x")))
            except pb_utils.TritonModelException as error:
                pb_utils.Logger.log_info(str(error))
""",
}
"""Model -> its Python."""


EARLY = (
    HEAD.replace("import numpy", "from triton_python_backend_utils import Tensor\nimport numpy") + "    x = Tensor\n"
)
"""A model that a server does not load: it imports what Triton sets later."""


def config_of(name: str) -> str:
    """A model's configuration."""
    return CONFIGS.get(name, VECTOR.format(batch=4))
