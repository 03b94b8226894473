// Runs of fixed sizes that CUDA repeats as one piece each.
#pragma once

#include <map>
#include <thread>

#include "engine.h"
#include "onnxruntime/sessions.h"

namespace tritonkit {

// A graph reads and writes the places that it was captured with. So each tensor has one place on the GPU, which the
// graphs of all sizes use, and a run copies to and from it.
class Graphs {
 public:
  // The session was opened for graphs. Throws Error where the GPU has no room.
  Graphs(const Config& config, const Placement& placement, SharedSession session, const Engine& engine,
         const CudaSettings& settings);
  // Why there can be none: empty where there can.
  static std::string why_not(const Config& config, const ort::Session* session, const Engine& engine);

  // Captures all sizes, where this thread has not. Throws Error where one cannot be captured: there are no graphs then.
  void capture();
  // After capture().
  void run(const std::vector<InputView>& given, std::vector<OutputView>& wanted);

 private:
  struct Place {
    TensorSpec spec;  // dims of the largest batch
    cuda::DeviceBuffer device;
    cuda::HostBuffer host;  // of an output
  };
  struct Graph {
    std::vector<ort::ValuePtr> values;
    ort::BindingPtr binding;
    ort::RunOptionsPtr options;
  };

  void add_place(std::vector<Place>& places, const TensorSpec& spec, const Config& config,
                 const std::vector<ConfiguredTensor>& configured);
  Shape shape_of(const Place& place, int64_t rows) const;
  ort::Value* value_of(const Place& place, int64_t rows, Graph& graph) const;
  void bind(int64_t rows, Graph& graph) const;
  void launch(const Graph& graph) const;

  const Placement placement_;
  const bool batched_;
  const SharedSession session_;
  const cuda::Stream stream_;
  ort::MemoryInfoPtr memory_;
  std::vector<Place> inputs_, outputs_;  // as in the engine
  std::map<int64_t, Graph> graphs_;      // by rows
  std::thread::id captured_in_;          // ONNX Runtime keeps graphs for each thread
};

}  // namespace tritonkit
