// What a configuration asks of an instance on a GPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config.h"
#include "onnxruntime/api.h"
#include "onnxruntime/tensorrt.h"

namespace tritonkit {

struct CudaSettings {
  // Throws Error where the configuration asks for what is not there.
  explicit CudaSettings(const Config& config);

  std::vector<ProviderOption> options;  // of the provider
  // Requests are filled up to the next of these rows. Empty where any number is run as it is.
  std::vector<int64_t> sizes;
  bool graphs = false;                       // a CUDA graph for each of the sizes; never with TensorRT
  std::optional<TensorRtSettings> tensorrt;  // of the provider that goes before CUDA's
};

// Throws Error where there is an accelerator that this backend does not have.
void check_accelerators(const Config& config);
// Throws Error where this server sees no GPU.
void require_gpu();
// The CUDA provider becomes one of these options. Throws Error, which says why, where it cannot be used.
void append_cuda(ort::SessionOptions* options, const CudaSettings& settings, int device, bool graphs);

}  // namespace tritonkit
