#include "onnxruntime/graphs.h"

#include <algorithm>

#include "onnxruntime/nodes.h"
#include "onnxruntime/settings.h"
#include "onnxruntime/signature.h"

namespace tritonkit {
namespace {

using ort::api;

constexpr const char* kCudaMemory = "Cuda";  // as ONNX Runtime calls it

// The configuration may fix what the file leaves open. States and controls are not among the configured tensors.
Shape dims_of(const TensorSpec& spec, const Config& config, const std::vector<ConfiguredTensor>& configured) {
  for (const ConfiguredTensor& tensor : configured) {
    if (tensor.spec.name == spec.name && !spec.dims.empty()) return config.full(tensor);
  }
  return spec.dims;
}

std::string why_not_fixed(const TensorSpec& spec, const Config& config,
                          const std::vector<ConfiguredTensor>& configured) {
  if (spec.type == TRITONSERVER_TYPE_BYTES) return text("'", spec.name, "' has strings");
  // A network may have more outputs than its configuration, and these need not have a batch.
  if (config.batched() && (spec.dims.empty() || spec.dims.front() != -1)) {
    return text("'", spec.name, "' has ", to_text(spec.dims), ", without a free first axis for the batch");
  }
  const Shape dims = dims_of(spec, config, configured);
  const bool is_free =
      std::any_of(dims.begin() + (config.batched() ? 1 : 0), dims.end(), [](int64_t size) { return size < 0; });
  return is_free ? text("'", spec.name, "' has ", to_text(dims), ", where -1 is any size") : "";
}

using MemoryGetter = ort::Status* (*)(const ort::Session*, const ort::MemoryInfo**, size_t);

// The tensors that ONNX Runtime does not want in the GPU's memory.
std::vector<std::string> on_host(MemoryGetter memory_of, const ort::Session* session,
                                 const std::vector<TensorSpec>& specs) {
  std::vector<const ort::MemoryInfo*> places(specs.size());
  ort::check(memory_of(session, places.data(), places.size()));
  std::vector<std::string> names;
  for (size_t place = 0; place < specs.size(); ++place) {
    const char* memory = "";
    ort::check(api().memory_name(places[place], &memory));
    if (std::string_view(memory) != kCudaMemory) names.push_back(specs[place].name);
  }
  return names;
}

// A graph repeats what the GPU did. What the CPU read from an input, such as a shape, would stay as it was at the
// capture.
std::string why_not_on_gpu(const Config& config, const ort::Session* session, const Engine& engine) {
  if (api().input_memory == nullptr) {
    return text("ONNX Runtime ", ort::version(), " does not say which tensors the CPU reads; 1.23 and newer do");
  }
  for (const std::string& input : on_host(api().input_memory, session, engine.inputs)) {
    const std::string readers = readers_of(read_file(model_file(config)), input);
    if (!readers.empty()) return text("the CPU reads input '", input, "', which is given to ", readers);
  }
  for (const std::string& output : on_host(api().output_memory, session, engine.outputs)) {
    return text("the CPU writes output '", output, "'");
  }
  return "";
}

}  // namespace

std::string Graphs::why_not(const Config& config, const ort::Session* session, const Engine& engine) {
  if (engine.required != engine.inputs.size()) return text("'", engine.inputs.back().name, "' has a default");
  for (const TensorSpec& spec : engine.inputs) {
    if (std::string reason = why_not_fixed(spec, config, config.inputs); !reason.empty()) return reason;
  }
  for (const TensorSpec& spec : engine.outputs) {
    if (std::string reason = why_not_fixed(spec, config, config.outputs); !reason.empty()) return reason;
  }
  return why_not_on_gpu(config, session, engine);
}

Graphs::Graphs(const Config& config, const Placement& placement, SharedSession session, const Engine& engine,
               const CudaSettings& settings)
    : placement_(placement), batched_(config.batched()), session_(std::move(session)), stream_(placement.device) {
  constexpr int kDeviceAllocator = 0, kDefaultMemory = 0;
  ort::MemoryInfo* memory = nullptr;
  ort::check(api().create_memory_info(kCudaMemory, kDeviceAllocator, placement.device, kDefaultMemory, &memory));
  memory_.reset(memory);
  for (const TensorSpec& spec : engine.inputs) add_place(inputs_, spec, config, config.inputs);
  for (const TensorSpec& spec : engine.outputs) add_place(outputs_, spec, config, config.outputs);
  if (!batched_) bind(1, graphs_[1]);
  for (int64_t rows : settings.sizes) bind(rows, graphs_[rows]);
}

void Graphs::add_place(std::vector<Place>& places, const TensorSpec& spec, const Config& config,
                       const std::vector<ConfiguredTensor>& configured) {
  Place& place = places.emplace_back();
  place.spec = {spec.name, spec.type, dims_of(spec, config, configured)};
  place.device.resize(bytes_of(spec.type, shape_of(place, config.max_batch)), placement_.device);
}

Shape Graphs::shape_of(const Place& place, int64_t rows) const {
  Shape shape = place.spec.dims;
  if (batched_) shape.front() = rows;
  return shape;
}

ort::Value* Graphs::value_of(const Place& place, int64_t rows, Graph& graph) const {
  const Shape shape = shape_of(place, rows);
  ort::Value* value = nullptr;
  ort::check(api().create_tensor_over(memory_.get(), place.device.data(), bytes_of(place.spec.type, shape),
                                      shape.data(), shape.size(), onnx_type(place.spec.type), &value));
  graph.values.emplace_back(value);
  return value;
}

void Graphs::bind(int64_t rows, Graph& graph) const {
  ort::IoBinding* binding = nullptr;
  ort::check(api().create_binding(session_.get(), &binding));
  graph.binding.reset(binding);
  for (const Place& place : inputs_) {
    ort::check(api().bind_input(binding, place.spec.name.c_str(), value_of(place, rows, graph)));
  }
  for (const Place& place : outputs_) {
    ort::check(api().bind_output(binding, place.spec.name.c_str(), value_of(place, rows, graph)));
  }
  ort::RunOptions* options = nullptr;
  ort::check(api().create_run_options(&options));
  graph.options.reset(options);
  // Any number but 0, which is ONNX Runtime's own.
  ort::check(api().add_run_entry(options, "gpu_graph_id", std::to_string(rows).c_str()));
}

void Graphs::launch(const Graph& graph) const {
  ort::check(api().run_with_binding(session_.get(), graph.options.get(), graph.binding.get()));
}

// What is captured runs too, so the inputs are zeros: what lay there may be no index into a table.
void Graphs::capture() {
  if (captured_in_ == std::this_thread::get_id()) return;
  for (const Place& place : inputs_) {
    stream_.clear(place.device.data(), bytes_of(place.spec.type, shape_of(place, graphs_.rbegin()->first)));
  }
  stream_.wait();
  for (const auto& entry : graphs_) {
    const cuda::Capturing alone;
    launch(entry.second);
  }
  captured_in_ = std::this_thread::get_id();
}

void Graphs::run(const std::vector<InputView>& given, std::vector<OutputView>& wanted) {
  const int64_t rows = batched_ ? given.at(0).shape.at(0) : 1;
  const auto running = cuda::while_running();
  for (const InputView& view : given) stream_.copy(view.data, view.bytes, inputs_[view.spec].device.data());
  stream_.wait();
  launch(graphs_.at(rows));
  // All places first: where there is no memory for one, no copy to another is under way.
  for (OutputView& view : wanted) {
    Place& place = outputs_[view.spec];
    view.shape = shape_of(place, rows);
    if (!view.in_place) view.data = place.host.resize(bytes_of(place.spec.type, view.shape), placement_);
  }
  for (const OutputView& view : wanted) {
    const Place& place = outputs_[view.spec];
    stream_.copy(place.device.data(), bytes_of(place.spec.type, view.shape), view.data);
  }
  stream_.wait();
}

}  // namespace tritonkit
