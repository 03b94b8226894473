// Source of the rules: `src/onnxruntime.cc` (ValidateInputs, ValidateOutputs) and `src/onnxruntime_utils.cc`
// (CompareDimsSupported) of triton-inference-server/onnxruntime_backend: what it refuses is refused here too.
#include "onnxruntime/signature.h"

#include <algorithm>
#include <array>

namespace tritonkit {
namespace {

using ort::api;

// By ONNXTensorElementDataType.
constexpr std::array<TRITONSERVER_DataType, 17> kTritonTypes{{
    TRITONSERVER_TYPE_INVALID,
    TRITONSERVER_TYPE_FP32,
    TRITONSERVER_TYPE_UINT8,
    TRITONSERVER_TYPE_INT8,
    TRITONSERVER_TYPE_UINT16,
    TRITONSERVER_TYPE_INT16,
    TRITONSERVER_TYPE_INT32,
    TRITONSERVER_TYPE_INT64,
    TRITONSERVER_TYPE_BYTES,
    TRITONSERVER_TYPE_BOOL,
    TRITONSERVER_TYPE_FP16,
    TRITONSERVER_TYPE_FP64,
    TRITONSERVER_TYPE_UINT32,
    TRITONSERVER_TYPE_UINT64,
    TRITONSERVER_TYPE_INVALID,
    TRITONSERVER_TYPE_INVALID,
    TRITONSERVER_TYPE_BF16,
}};

}  // namespace

int onnx_type(TRITONSERVER_DataType type) {
  auto found = std::find(kTritonTypes.begin(), kTritonTypes.end(), type);
  return static_cast<int>(found - kTritonTypes.begin());
}

Shape shape_of(const ort::ShapeInfo* info) {
  size_t rank = 0;
  ort::check(api().rank(info, &rank));
  Shape shape(rank);
  ort::check(api().dims(info, shape.data(), rank));
  return shape;
}

namespace {

// --- what the file says ---

using Counter = ort::Status* (*)(const ort::Session*, size_t*);
using TypeGetter = ort::Status* (*)(const ort::Session*, size_t, ort::TypeInfo**);
using NameGetter = ort::Status* (*)(const ort::Session*, size_t, ort::Allocator*, char**);

TensorSpec spec_of(std::string name, const ort::TypeInfo* type) {
  const ort::ShapeInfo* info = nullptr;
  ort::check(api().as_tensor_info(type, &info));
  int element = 0;
  if (info != nullptr) ort::check(api().element_type(info, &element));
  bool known = element > 0 && static_cast<size_t>(element) < kTritonTypes.size();
  TRITONSERVER_DataType found = known ? kTritonTypes.at(static_cast<size_t>(element)) : TRITONSERVER_TYPE_INVALID;
  if (found == TRITONSERVER_TYPE_INVALID)
    throw Error(text("tensor '", name, "' is of a type that Triton cannot carry"));
  return {std::move(name), found, shape_of(info)};
}

void append_specs(std::vector<TensorSpec>& specs, const ort::Session* session, Counter count, NameGetter name,
                  TypeGetter type) {
  ort::Allocator* allocator = nullptr;
  ort::check(api().default_allocator(&allocator));
  size_t found = 0;
  ort::check(count(session, &found));
  for (size_t place = 0; place < found; ++place) {
    char* text = nullptr;
    ort::check(name(session, place, allocator, &text));
    std::string named = text;
    ort::check(api().free(allocator, text));
    ort::TypeInfo* info = nullptr;
    ort::check(type(session, place, &info));
    ort::TypeInfoPtr kept(info);
    specs.push_back(spec_of(std::move(named), info));
  }
}

// --- what the configuration says ---

bool dims_fit(const Shape& configured, const Shape& actual, bool exact) {
  if (actual.empty()) {  // a scalar is configured as [1], since Triton has no rank 0
    return std::all_of(configured.begin(), configured.end(), [](int64_t size) { return size == 1; });
  }
  return std::equal(configured.begin(), configured.end(), actual.begin(), actual.end(),
                    [&](int64_t want, int64_t have) { return want == have || (have == -1 && !exact); });
}

void check_tensor(const std::string& side, const ConfiguredTensor& tensor, const std::vector<TensorSpec>& specs,
                  const Config& config, bool exact) {
  const std::string where = text(side, " '", tensor.spec.name, "'");
  auto spec = std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& s) { return s.name == tensor.spec.name; });
  if (spec == specs.end()) {
    throw Error(text(where, " is in config.pbtxt and not in the ONNX file, which has ", names_of(specs)));
  }
  if (tensor.spec.type != spec->type) {
    throw Error(text(where, ": config.pbtxt says ", type_name(tensor.spec.type), ", the ONNX file has ",
                     type_name(spec->type)));
  }
  if (config.batched() && (spec->dims.empty() || spec->dims[0] != -1)) {
    throw Error(text(where, ": max_batch_size is above 0, so the first axis must be free; the ONNX file has ",
                     to_text(spec->dims), ": export with a dynamic batch or set max_batch_size to 0"));
  }
  Shape full = config.full(tensor);
  if (!dims_fit(full, spec->dims, exact)) {
    throw Error(text(where, ": config.pbtxt says ", to_text(full),
                     config.batched() ? " (the batch axis and dims)" : " (dims)", ", the ONNX file has ",
                     to_text(spec->dims)));
  }
}

// Every input must be configured; outputs may be left out. A configured free axis fits any input axis, while output
// dims must be equal.
void check_signature(const Config& config, const Engine& engine) {
  for (size_t place = 0; place < engine.required; ++place) {
    const std::string& name = engine.inputs[place].name;
    bool configured =
        std::any_of(config.inputs.begin(), config.inputs.end(), [&](const auto& t) { return t.spec.name == name; }) ||
        std::any_of(config.states.begin(), config.states.end(), [&](const auto& s) { return s.input == name; }) ||
        std::find(config.controls.begin(), config.controls.end(), name) != config.controls.end();
    if (!configured) throw Error(text("input '", name, "' is in the ONNX file and not in config.pbtxt"));
  }
  for (const ConfiguredTensor& input : config.inputs) check_tensor("input", input, engine.inputs, config, false);
  for (const ConfiguredTensor& output : config.outputs) check_tensor("output", output, engine.outputs, config, true);
}

}  // namespace

void read_signature(const Config& config, const ort::Session* session, Engine& engine) {
  append_specs(engine.inputs, session, api().input_count, api().input_name, api().input_type);
  engine.required = engine.inputs.size();
  append_specs(engine.inputs, session, api().optional_count, api().optional_name, api().optional_type);
  append_specs(engine.outputs, session, api().output_count, api().output_name, api().output_type);
  check_signature(config, engine);
}

}  // namespace tritonkit
