// What an ONNX file says of its tensors, and whether a configuration agrees.
#pragma once

#include "engine.h"
#include "onnxruntime/api.h"

namespace tritonkit {

int onnx_type(TRITONSERVER_DataType type);
Shape shape_of(const ort::ShapeInfo* info);
// The file's tensors become those of the engine. Throws Error where the configuration does not fit them.
void read_signature(const Config& config, const ort::Session* session, Engine& engine);

}  // namespace tritonkit
