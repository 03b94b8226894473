"""Damaged requests for the native backends' networks, which give back what they get."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from random import Random
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.waiting import PATIENCE_S

DATATYPES = {"FP32": 4, "INT32": 4, "INT64": 8, "UINT8": 1, "BOOL": 1, "FP16": 2, "BYTES": 0}
"""Bytes of an element by name of its type; 0 for types that carry their length."""
ODD_SIZES = (0, 1, 2, 3, 4, 5, 8, 9, 1000, -1, -(2**63), 2**31, 2**32, 2**61, 2**62, 2**63 - 1)
REGION_BYTES = 4096


@dataclass(frozen=True)
class Network:
    """An identity: its name, its type, and the sizes that it takes (-1: any)."""

    name: str
    datatype: str
    dims: tuple[int, ...]


def _element(random: Random, datatype: str) -> bytes:
    if datatype == "BYTES":
        text = "".join(random.choices("aé中🙂\0", k=random.randint(0, 5))).encode()
        return struct.pack("<I", len(text)) + text
    if datatype == "BOOL":
        return bytes([random.randrange(2)])
    return random.randbytes(DATATYPES[datatype])


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


class Sender:
    """Sends damaged requests to one server and says how each was answered.

    Args:
        address: the server's, of gRPC.
        networks: what it serves.
        region: the name of a region that only this sender uses.
    """

    def __init__(self, address: str, networks: Sequence[Network], region: str) -> None:
        self._networks = networks
        self._channel = grpc.insecure_channel(address)
        self._stub: Any = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._name = region
        self._region = SharedMemory(region, create=True, size=REGION_BYTES)
        self._stub.SystemSharedMemoryRegister(
            service_pb2.SystemSharedMemoryRegisterRequest(
                name=region, key=f"/{region}", offset=0, byte_size=REGION_BYTES
            )
        )

    def close(self) -> None:
        """Give back the region and the connection."""
        self._stub.SystemSharedMemoryUnregister(service_pb2.SystemSharedMemoryUnregisterRequest(name=self._name))
        self._region.close()
        self._region.unlink()
        self._channel.close()

    def send(self, random: Random) -> str:
        """One request: the status, or WRONG where an answer is not what was sent."""
        network = random.choice(self._networks)
        shape = [size if size >= 0 else random.randint(0, 4) for size in network.dims]
        data = b"".join(_element(random, network.datatype) for _ in range(_count(shape)))
        request = service_pb2.ModelInferRequest(model_name=network.name)
        tensor = request.inputs.add(name="x", datatype=network.datatype, shape=shape)
        request.raw_input_contents.append(data)
        if random.random() < 0.3:
            request.outputs.add(name="y")
        for _ in range(random.choice([0, 1, 1, 1, 2])):
            self._damage(random, request, tensor)
        try:
            answer = self._stub.ModelInfer(request, timeout=PATIENCE_S)
        except grpc.RpcError as error:
            return str(error.code().name)  # type: ignore[attr-defined]
        except ValueError:  # what protobuf cannot carry
            return "UNSENT"
        return "OK" if self._is_right(request, answer) else "WRONG"

    def _damage(self, random: Random, request: Any, tensor: Any) -> None:
        damage = random.choice(
            [
                self._sizes,
                self._datatype,
                self._content,
                self._names,
                self._shared_input,
                self._shared_output,
                self._parameters,
            ]
        )
        damage(random, request, tensor)

    def _sizes(self, random: Random, request: Any, tensor: Any) -> None:
        kind = random.randrange(3)
        if kind == 0 and tensor.shape:
            tensor.shape[random.randrange(len(tensor.shape))] = random.choice(ODD_SIZES)
        elif kind == 1:
            tensor.shape.append(random.choice(ODD_SIZES))
        else:
            del tensor.shape[:]
            tensor.shape.extend(random.choices(ODD_SIZES, k=random.randint(0, 6)))

    def _datatype(self, random: Random, request: Any, tensor: Any) -> None:
        tensor.datatype = random.choice([*DATATYPES, "BF16", "", "FP31"])

    def _content(self, random: Random, request: Any, tensor: Any) -> None:
        if not request.raw_input_contents:
            return
        data = bytearray(request.raw_input_contents[0])
        kind = random.randrange(5)
        if kind == 0:
            data = data[: random.randrange(len(data) + 1)]
        elif kind == 1:
            data += random.randbytes(random.randint(1, 9))
        elif kind == 2 and len(data) >= 4:  # a length of BYTES
            data[:4] = struct.pack("<I", random.choice([0, 1, 5, 2**31, 2**32 - 1, len(data)]))
        elif kind == 3:
            data = bytearray(random.randbytes(random.randint(0, 64)))
        elif data:
            data[random.randrange(len(data))] ^= 0xFF
        request.raw_input_contents[0] = bytes(data)

    def _names(self, random: Random, request: Any, tensor: Any) -> None:
        kind = random.randrange(5)
        if kind == 0:
            tensor.name = random.choice(["", "z", "y", "x" * 5000])
        elif kind == 1:
            request.inputs.add(name=random.choice(["x", "z"]), datatype="FP32", shape=[1])
            request.raw_input_contents.append(b"\0\0\0\0")
        elif kind == 2:
            del request.inputs[:]
            del request.raw_input_contents[:]
        elif kind == 3:
            request.outputs.add(name=random.choice(["y", "z", ""]))
        else:
            request.model_name = random.choice([network.name for network in self._networks])

    def _region_at(self, random: Random, parameters: Any) -> None:
        # Not below 0: Triton 2.51 lets the sum of place and size overflow, and dies of BYTES there itself.
        parameters["shared_memory_region"].string_param = random.choice([self._name, self._name, "none"])
        parameters["shared_memory_offset"].int64_param = random.choice(
            [0, 0, 1, 3, 8, 64, REGION_BYTES - 8, REGION_BYTES, 2**62]
        )
        parameters["shared_memory_byte_size"].int64_param = random.choice(
            [0, 1, 4, 8, 16, 32, 64, 1024, REGION_BYTES, REGION_BYTES + 1, 2**62]
        )

    def _shared_input(self, random: Random, request: Any, tensor: Any) -> None:
        del request.raw_input_contents[:1]
        self._region_at(random, tensor.parameters)

    def _shared_output(self, random: Random, request: Any, tensor: Any) -> None:
        if not request.outputs:
            request.outputs.add(name="y")
        self._region_at(random, request.outputs[0].parameters)

    def _parameters(self, random: Random, request: Any, tensor: Any) -> None:
        name = random.choice(["priority", "timeout", "sequence_id", "sequence_start", "odd", "triton_x"])
        request.parameters[name].int64_param = random.choice([0, 1, -1, 2**62])

    def _is_right(self, request: Any, answer: Any) -> bool:
        """Whether the output is the input; not asked where the input lay in the region, which is overwritten."""
        if [len(request.inputs), len(request.raw_input_contents), len(answer.outputs)] != [1, 1, 1]:
            return True
        sent, output = request.raw_input_contents[0], answer.outputs[0]
        received = answer.raw_output_contents[0]
        if request.outputs and "shared_memory_region" in request.outputs[0].parameters:
            offset = request.outputs[0].parameters["shared_memory_offset"].int64_param
            received = bytes(self._region.buf[offset : offset + len(sent)])
        return list(output.shape) == list(request.inputs[0].shape) and received == sent
