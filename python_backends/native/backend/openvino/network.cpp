#include "openvino/network.h"

#include <algorithm>
#include <array>

#include "error.h"

namespace tritonkit::ov {
namespace {

Shape shape_of(const Port* port, const std::string& name) {
  PartialShape found{};
  check(api().ov_port_get_partial_shape(port, &found));
  bool any_rank = found.rank.low != found.rank.high;
  Shape shape;
  for (int64_t axis = 0; !any_rank && axis < found.rank.low; ++axis) {
    shape.push_back(found.dims[axis].low == found.dims[axis].high ? found.dims[axis].low : -1);
  }
  api().ov_partial_shape_free(&found);
  if (any_rank) throw Error(text("'", name, "' has no fixed number of axes"));
  return shape;
}

PortPtr input_port(const Model* model, const std::string& name) {
  return made<PortPtr>(api().ov_model_const_input_by_name, model, name.c_str());
}

PortPtr output_port(const Model* model, const std::string& name) {
  return made<PortPtr>(api().ov_model_const_output_by_name, model, name.c_str());
}

std::string name_of(const Port* port) {
  char* found = nullptr;
  check(api().ov_port_get_any_name(port, &found));
  std::string name = found;
  api().ov_free(found);
  return name;
}

template <typename Size, typename ByIndex>
std::string names_of(const Model* model, Size size, ByIndex by_index) {
  size_t count = 0;
  check(size(model, &count));
  std::string names;
  for (size_t place = 0; place < count; ++place) {
    names += text(names.empty() ? "'" : ", '", name_of(made<PortPtr>(by_index, model, place).get()), "'");
  }
  return text("[", names, "]");
}

void reshape(const Model* model, const std::map<std::string, Shape>& shapes) {
  struct Shapes : std::vector<PartialShape> {
    ~Shapes() {
      for (PartialShape& shape : *this) api().ov_partial_shape_free(&shape);
    }
  } wanted;
  wanted.reserve(shapes.size());
  std::vector<const char*> names;
  std::string said;
  for (const auto& [name, shape] : shapes) {
    std::vector<Dimension> dims;
    for (int64_t size : shape) dims.push_back(size < 0 ? Dimension{-1, -1} : Dimension{size, size});
    PartialShape partial{};
    check(api().ov_partial_shape_create(static_cast<int64_t>(dims.size()), dims.data(), &partial));
    names.push_back(name.c_str());
    wanted.push_back(partial);
    said += text(said.empty() ? "'" : ", '", name, "': ", to_text(shape));
  }
  try {
    check(api().ov_model_reshape(model, names.data(), wanted.data(), names.size()));
  } catch (const Error& error) {
    throw Error(text("the model cannot take inputs of {", said, "}: ", error.what()));
  }
}

// A free axis of the network fits any size; -1 in the configuration fits any input axis of a batched model, and else a
// free one only. `batch` is what the first axis must be, or -1.
void check_dims(const std::string& side, const ConfiguredTensor& tensor, const Shape& dims, const Config& config,
                int64_t batch) {
  Shape full = config.full(tensor);
  if (config.batched()) full[0] = batch;
  bool loose = side == "input" && config.batched();
  // A scalar is configured as [1], since Triton has no rank 0.
  if (dims.empty() && std::all_of(full.begin(), full.end(), [](int64_t size) { return size == 1; })) return;
  bool fits = full.size() == dims.size();
  for (size_t axis = 0; fits && axis < dims.size(); ++axis) {
    fits = dims[axis] == -1 || dims[axis] == full[axis] || (loose && (full[axis] == -1 || axis == 0));
  }
  if (fits) return;
  throw Error(text(side, " '", tensor.spec.name, "': config.pbtxt says ", to_text(full),
                   config.batched() ? " (the batch axis and dims)" : " (dims)", ", the model has ", to_text(dims)));
}

}  // namespace

OvNetwork::OvNetwork(const Config& config) : config_(config) {
  check_device(config);
  file_ = model_file(config);
  properties_ = properties(config, file_);
  properties_alone_ = properties_alone(config, properties_);
  core_ = made<CorePtr>(api().ov_core_create);
  const std::string& extension = config.parameter("CPU_EXTENSION_PATH");
  if (!extension.empty()) {
    try {
      check(api().ov_core_add_extension(core_.get(), extension.c_str()));
    } catch (const Error& error) {
      throw Error(text("parameter CPU_EXTENSION_PATH: ", error.what()));
    }
  }
  ModelPtr model = read();
  check_outputs(model.get());
  model = read();
  for (const ConfiguredTensor& input : config.inputs) {
    inputs.push_back(
        {input.spec.name, input.spec.type, shape_of(input_port(model.get(), input.spec.name).get(), input.spec.name)});
  }
  for (const ConfiguredTensor& output : config.outputs) {
    outputs.push_back({output.spec.name, output.spec.type,
                       shape_of(output_port(model.get(), output.spec.name).get(), output.spec.name)});
  }
  if (!config.batched()) {
    std::map<std::string, Shape> shapes;
    bool all_fixed = true;
    for (size_t place = 0; place < config.inputs.size(); ++place) {
      const ConfiguredTensor& input = config.inputs[place];
      if (!inputs[place].dims.empty()) shapes[input.spec.name] = input.spec.dims;
      all_fixed = all_fixed &&
                  std::all_of(input.spec.dims.begin(), input.spec.dims.end(), [](int64_t size) { return size >= 0; });
    }
    if (all_fixed && !shapes.empty()) reshape(model.get(), shapes);
  }
  forms_[0].usual = compile(model.get(), properties_);
  choose_forms();
  if (differs_alone()) {
    for (auto& [size, form] : forms_) {
      if (size != 0) model = fixed_model(size);
      form.alone = compile(model.get(), properties_alone_);
    }
  }
  std::string said;
  for (const auto& [key, value] : properties_) said += text(said.empty() ? "" : ", ", key, " ", value);
  if (differs_alone()) {
    said += text("; of a run alone: INFERENCE_NUM_THREADS ", properties_alone_.at("INFERENCE_NUM_THREADS"),
                 ", NUM_STREAMS ", properties_alone_.at("NUM_STREAMS"));
  }
  log(TRITONSERVER_LOG_INFO, text("model '", config.name, "': ", said, "; ", choice_.to_text()));
}

// With the configuration's types and sizes, its batch axis free.
ModelPtr OvNetwork::read() const {
  ModelPtr model;
  try {
    model = made<ModelPtr>(api().ov_core_read_model, core_.get(), file_.c_str(), static_cast<const char*>(nullptr));
  } catch (const Error& error) {
    throw Error(text("OpenVINO cannot load ", file_.string(), ": ", error.what()));
  }
  check_names(model.get());
  if (is_yes(config_, "RESHAPE_IO_LAYERS")) {
    std::map<std::string, Shape> shapes;
    for (const ConfiguredTensor& input : config_.inputs) shapes[input.spec.name] = config_.full(input);
    reshape(model.get(), shapes);
  } else {
    check_inputs(model.get());
  }
  model = with_types(model.get());
  if (config_.batched()) {
    std::map<std::string, Shape> shapes;
    for (const ConfiguredTensor& input : config_.inputs) {
      Shape shape = shape_of(input_port(model.get(), input.spec.name).get(), input.spec.name);
      shape[0] = -1;
      shapes[input.spec.name] = shape;
    }
    reshape(model.get(), shapes);
  }
  return model;
}

void OvNetwork::check_names(const Model* model) const {
  auto check_side = [&](const std::string& side, const std::vector<ConfiguredTensor>& tensors, auto by_name, auto size,
                        auto by_index) {
    for (const ConfiguredTensor& tensor : tensors) {
      Port* port = nullptr;
      if (by_name(model, tensor.spec.name.c_str(), &port) != 0) {
        throw Error(text(side, " '", tensor.spec.name, "' is in config.pbtxt and not in the model, which has ",
                         names_of(model, size, by_index)));
      }
      PortPtr kept(port);
      if (element_type(tensor.spec.type) < 0) {
        throw Error(text(side, " '", tensor.spec.name, "': unsupported datatype TYPE_", type_name(tensor.spec.type)));
      }
    }
  };
  check_side("input", config_.inputs, api().ov_model_const_input_by_name, api().ov_model_inputs_size,
             api().ov_model_const_input_by_index);
  check_side("output", config_.outputs, api().ov_model_const_output_by_name, api().ov_model_outputs_size,
             api().ov_model_const_output_by_index);
  size_t count = 0;
  check(api().ov_model_inputs_size(model, &count));
  if (count != config_.inputs.size()) {
    throw Error(text("config.pbtxt has ", config_.inputs.size(), " inputs, the model has ", count, ": ",
                     names_of(model, api().ov_model_inputs_size, api().ov_model_const_input_by_index)));
  }
}

void OvNetwork::check_inputs(const Model* model) const {
  for (const ConfiguredTensor& input : config_.inputs) {
    check_dims("input", input, shape_of(input_port(model, input.spec.name).get(), input.spec.name), config_, -1);
  }
}

// Outputs at the largest batch, as NVIDIA's backend compiles the network.
void OvNetwork::check_outputs(const Model* model) const {
  if (config_.batched()) {
    std::map<std::string, Shape> shapes;
    for (const ConfiguredTensor& input : config_.inputs) {
      Shape shape = shape_of(input_port(model, input.spec.name).get(), input.spec.name);
      shape[0] = config_.max_batch;
      shapes[input.spec.name] = shape;
    }
    reshape(model, shapes);
  }
  for (const ConfiguredTensor& output : config_.outputs) {
    Shape dims = shape_of(output_port(model, output.spec.name).get(), output.spec.name);
    check_dims("output", output, dims, config_, config_.batched() ? config_.max_batch : -1);
  }
}

// As in NVIDIA's backend a tensor of another type is converted.
ModelPtr OvNetwork::with_types(const Model* model) const {
  ProcessorPtr steps = made<ProcessorPtr>(api().ov_preprocess_prepostprocessor_create, model);
  for (const ConfiguredTensor& input : config_.inputs) {
    auto info = made<InputInfoPtr>(api().ov_preprocess_prepostprocessor_get_input_info_by_name, steps.get(),
                                   input.spec.name.c_str());
    auto tensor = made<InputTensorInfoPtr>(api().ov_preprocess_input_info_get_tensor_info, info.get());
    check(api().ov_preprocess_input_tensor_info_set_element_type(tensor.get(), element_type(input.spec.type)));
  }
  for (const ConfiguredTensor& output : config_.outputs) {
    auto info = made<OutputInfoPtr>(api().ov_preprocess_prepostprocessor_get_output_info_by_name, steps.get(),
                                    output.spec.name.c_str());
    auto tensor = made<OutputTensorInfoPtr>(api().ov_preprocess_output_info_get_tensor_info, info.get());
    check(api().ov_preprocess_output_set_element_type(tensor.get(), element_type(output.spec.type)));
  }
  return made<ModelPtr>(api().ov_preprocess_prepostprocessor_build, steps.get());
}

CompiledPtr OvNetwork::compile(const Model* model, const Properties& properties) const {
  // The interface takes pairs as variable arguments; unused places repeat what is there.
  constexpr size_t kMost = 8;
  std::array<const char*, 2 * kMost> pairs{};
  size_t used = 0;
  for (const auto& [key, value] : properties) {
    pairs.at(used++) = key.c_str();
    pairs.at(used++) = value.c_str();
  }
  Compiled* compiled = nullptr;
  try {
    check(api().ov_core_compile_model(core_.get(), model, "CPU", used, &compiled, pairs[0], pairs[1], pairs[2],
                                      pairs[3], pairs[4], pairs[5], pairs[6], pairs[7], pairs[8], pairs[9], pairs[10],
                                      pairs[11], pairs[12], pairs[13], pairs[14], pairs[15]));
  } catch (const Error& error) {
    throw Error(text("the model cannot be compiled: ", error.what()));
  }
  return CompiledPtr(compiled);
}

// --- forms of one size ---

// Null where an axis beside the batch is free.
ModelPtr OvNetwork::fixed_model(int64_t size) const {
  std::map<std::string, Shape> shapes;
  for (const ConfiguredTensor& input : config_.inputs) {
    Shape shape = config_.full(input);
    shape[0] = size;
    if (std::any_of(shape.begin(), shape.end(), [](int64_t axis) { return axis < 0; })) return nullptr;
    shapes[input.spec.name] = shape;
  }
  ModelPtr model = read();
  reshape(model.get(), shapes);
  return model;
}

void OvNetwork::choose_forms() {
  std::vector<int64_t> sizes = batch_sizes(config_);
  if (sizes.empty() || !fixed_model(1)) return;
  std::map<int64_t, RequestPtr> requests;
  auto run = [&](int64_t form_size, int64_t size) {
    RequestPtr& request = requests[form_size];
    if (!request) {
      Form& form = forms_[form_size];
      if (!form.usual) form.usual = compile(fixed_model(form_size).get(), properties_);
      request = made<RequestPtr>(api().ov_compiled_model_create_infer_request, form.usual.get());
    }
    run_zeros(request.get(), size);
  };
  try {
    choice_ = Choice::measure(sizes, [&](int64_t size) { run(0, size); }, [&](int64_t size) { run(size, size); });
  } catch (const Error&) {  // zeros are no input for this network: nothing can be measured
  }
  requests.clear();
  for (int64_t size : sizes) {
    if (!choice_.has(size)) forms_.erase(size);
  }
}

void OvNetwork::run_zeros(Request* request, int64_t size) const {
  std::vector<std::vector<std::byte>> memory;
  for (const ConfiguredTensor& input : config_.inputs) {
    Shape shape = config_.full(input);
    shape[0] = size;
    memory.emplace_back(bytes_of(input.spec.type, shape));
    TensorPtr tensor = made<TensorPtr>(api().ov_tensor_create_from_host_ptr, element_type(input.spec.type),
                                       FixedShape{static_cast<int64_t>(shape.size()), shape.data()},
                                       static_cast<void*>(memory.back().data()));
    check(api().ov_infer_request_set_tensor(request, input.spec.name.c_str(), tensor.get()));
  }
  check(api().ov_infer_request_infer(request));
}

Compiled* OvNetwork::form(int64_t size, bool alone) const {
  const Form& form = forms_.at(size);
  return alone && form.alone ? form.alone.get() : form.usual.get();
}

int64_t OvNetwork::size_for(int64_t batch) const {
  int64_t size = choice_.size_for(batch);
  return has(size) ? size : 0;
}

}  // namespace tritonkit::ov
