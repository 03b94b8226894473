// ONNX Runtime's TensorRT provider: it compiles the parts of a network that TensorRT can run, and CUDA's runs the rest.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "onnxruntime/api.h"

namespace tritonkit {

using ProviderOption = std::pair<std::string, std::string>;

constexpr const char *kTensorRt = "tensorrt", *kGpuAccelerators = "gpu_execution_accelerator";

struct TensorRtSettings {
  // Throws Error where the configuration asks for what is not there.
  explicit TensorRtSettings(const Config& config);

  std::vector<ProviderOption> options;  // of the provider, but for profiles and folders
  // Shapes that an engine is built for. Empty where all are fixed, or where engines grow with the shapes that come.
  std::vector<ProviderOption> profiles;
  std::string why_no_profiles;  // empty where there are some, or none are needed
  bool keeps_engines = true, keeps_timings = true;
  std::filesystem::path folder;  // of what is kept, by the configuration; empty where the server's is taken
};

// Whether the configuration has the accelerator.
bool wants_tensorrt(const Config& config);
// By --backend-config: the libraries that are opened before the provider, and the folder where engines are kept.
void set_tensorrt(const Json& settings);
const std::filesystem::path& engines_folder();
// As TensorRT's library says it, such as 101601 for 10.16.1. Throws Error where the library is not there.
int tensorrt_version();
// The provider becomes one of these options, with further options. Throws Error where it cannot be used.
void append_tensorrt(ort::SessionOptions* options, const TensorRtSettings& settings, int device,
                     const std::vector<ProviderOption>& further);
// Whether a session could not be opened because TensorRT gets a part of the network whose shapes no profile names.
bool lacks_profiles(const Error& error);

}  // namespace tritonkit
