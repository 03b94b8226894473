// The folder where TensorRT's engines of one network are kept between starts.
#pragma once

#include <filesystem>
#include <vector>

#include "onnxruntime/tensorrt.h"

namespace tritonkit {

// ONNX Runtime knows an engine again by the network's file name and nodes, but not by its weights, options or versions.
// So each combination of these has a folder of its own. While one process builds there the others wait, and what a
// process left that died meanwhile is removed.
class EngineFolder {
 public:
  // Without a folder that can be written nothing is kept, which the log says. Throws Error where TensorRT is missing.
  EngineFolder(const Config& config, const TensorRtSettings& settings);
  ~EngineFolder();
  EngineFolder(const EngineFolder&) = delete;
  EngineFolder& operator=(const EngineFolder&) = delete;

  // Options for the provider.
  std::vector<ProviderOption> options() const;
  // Lets other starts use the engines that are there now.
  void finish();

 private:
  bool prepare();
  bool lock();

  const bool keeps_engines_, keeps_timings_;
  std::filesystem::path model_, engines_, timings_;  // empty where nothing is kept
  int lock_ = -1;
};

}  // namespace tritonkit
