"""MLServer: a custom runtime; model-settings.json turns its adaptive batching on."""

import json
import os

import numpy as np
from mlserver import MLModel
from mlserver.codecs import Base64Codec, NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse
from model import Model

NAME = os.environ["MODEL"]


class Inference(MLModel):
    """A worker's copy."""

    async def load(self) -> bool:
        """Load the model."""
        self.model = Model(os.environ["MODEL_FOLDER"], int(os.environ["THREADS"]))
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """A batch."""
        [tensor] = payload.inputs
        answers = self.model(self.bodies(tensor))
        if NAME == "resnet50":
            results = [json.loads(answer) for answer in answers]
            labels = [label for result in results for label in result["label"]]
            scores = np.array([result["score"] for result in results], np.float32)
            label = StringCodec.encode_output("label", labels)
            label.shape = [len(results), 5]
            outputs = [label, NumpyCodec.encode_output("score", scores)]
        else:
            rows = np.array([np.frombuffer(answer, np.float32) for answer in answers])
            name = "logits" if NAME == "digits_network" else "embedding"
            outputs = [NumpyCodec.encode_output(name, rows)]
        return InferenceResponse(model_name=self.name, outputs=outputs)

    def bodies(self, tensor) -> list[bytes]:
        """The items of a batch as bytes."""
        if NAME == "digits_network":
            pixels = NumpyCodec.decode_input(tensor).astype(np.float32)
            return [row.tobytes() for row in pixels]
        if NAME == "sentences":
            return [text.encode() for text in StringCodec.decode_input(tensor)]
        return Base64Codec.decode_input(tensor)  # bytes that are no base64 stay as they are
