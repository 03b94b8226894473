// A network's sessions.
#pragma once

#include <memory>

#include "cuda.h"
#include "onnxruntime/cuda_settings.h"

namespace tritonkit {

using SharedSession = std::shared_ptr<ort::Session>;

// Throws Error where ONNX Runtime cannot load the network.
SharedSession open_session(const Config& config, int threads);
SharedSession open_on_gpu(const Config& config, const Placement& placement, const CudaSettings& settings, bool graphs);
// Whether that failed because the network cannot have graphs: a part of it runs elsewhere, or it has control flow.
bool refuses_graphs(const Error& error);
bool has_control_flow(const Error& error);
// Those that the CUDA provider lacks, as in "Loop (name), NonZero (other)".
std::string lacking_nodes(const Config& config, const Placement& placement, const CudaSettings& settings);
// Whether the file has a convolution.
bool has_convolution(const Config& config);

}  // namespace tritonkit
