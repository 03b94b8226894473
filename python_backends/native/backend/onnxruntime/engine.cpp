// ONNX Runtime's sessions as engines.
//
// Source of the rules for configurations: `src/onnxruntime.cc` (ModelState, ValidateInputs, ValidateOutputs) and
// `src/onnxruntime_utils.cc` (CompareDimsSupported) of triton-inference-server/onnxruntime_backend: what it
// refuses is refused here too.
#include "engine.h"

#include <algorithm>
#include <array>

#include "alone.h"
#include "onnxruntime/api.h"

namespace tritonkit {

const char* const kBackend = "onnxruntime";

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

int onnx_type(TRITONSERVER_DataType type) {
  auto found = std::find(kTritonTypes.begin(), kTritonTypes.end(), type);
  return static_cast<int>(found - kTritonTypes.begin());
}

// --- what the file says ---

using Counter = ort::Status* (*)(const ort::Session*, size_t*);
using TypeGetter = ort::Status* (*)(const ort::Session*, size_t, ort::TypeInfo**);
using NameGetter = ort::Status* (*)(const ort::Session*, size_t, ort::Allocator*, char**);

Shape shape_of(const ort::ShapeInfo* info) {
  size_t rank = 0;
  ort::check(api().rank(info, &rank));
  Shape shape(rank);
  ort::check(api().dims(info, shape.data(), rank));
  return shape;
}

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

void check_accelerators(const Config& config) {
  const Json& accelerators = config.json["optimization"]["execution_accelerators"];
  for (const char* device : {"cpu_execution_accelerator", "gpu_execution_accelerator"}) {
    for (const Json& entry : accelerators[device].items()) {
      throw Error(text("optimization.execution_accelerators.", device, " '", entry["name"].text(),
                       "' found; this backend has ONNX Runtime's CPU provider only: remove it, or use NVIDIA's image"));
    }
  }
}

int graph_level(const Config& config) {
  constexpr int kNone = 0, kBasic = 1, kExtended = 2, kAll = 99;
  switch (config.json["optimization"]["graph"]["level"].integer()) {
    case -1:
      return kBasic;
    case 1:
      return kExtended;
    case 2:
      return kNone;
    default:
      return kAll;
  }
}

constexpr const char *kIntraOp = "intra_op_thread_count", *kInterOp = "inter_op_thread_count";

int threads_asked(const Config& config, const std::string& key) {
  return thread_count(text("parameter ", key), config.parameter(key));
}

// ONNX Runtime's own default, 0, is one thread for each core, and knows nothing of a quota.
int threads_or_quota(int asked) { return asked == 0 ? cores_of_quota() : asked; }

int64_t execution_mode(const Config& config) {
  int64_t mode = config.whole_number("execution_mode");
  if (mode != 0 && mode != 1) throw Error(text("parameter execution_mode: found ", mode, ", wanted 0 or 1"));
  return mode;
}

// Each instance has threads of its own; those between the operators are there in parallel mode alone.
void check_threads(const Config& config) {
  if (ort::shares_threads()) return;
  const std::string where = text("model '", config.name, "': ");
  int64_t instances = instance_count(config);
  auto warn = [&](const char* key) {
    int64_t each = threads_asked(config, key);
    std::string what =
        instances == 1 ? text(key, " ", each) : text(key, " ", each, " in each of ", instances, " instances");
    if (each > 0) warn_of_threads(where, what, each * instances);
  };
  warn(kIntraOp);
  if (execution_mode(config) == 1) warn(kInterOp);
}

// To wake a worker for each operator takes a good part of a run's time; one that spins until the next run takes a core
// from Triton and from other models. So workers spin for a moment, and within a run alone, where that can be asked for.
std::vector<std::pair<const char*, const char*>> idle_workers() {
  if (!ort::has_short_spins()) return {{"session.intra_op.allow_spinning", "0"}};
  return {{"session.intra_op.spin_duration_us", "50"}, {"session.force_spinning_stop", "1"}};
}

// With "1" ONNX Runtime multiplies FP32 matrices in bfloat16 on ARM processors that can.
constexpr const char* kHalfEntry = "mlas.enable_gemm_fastmath_arm64_bfloat16";

ort::OptionsPtr session_options(const Config& config, int threads) {
  ort::SessionOptions* options = nullptr;
  ort::check(api().create_session_options(&options));
  ort::OptionsPtr kept(options);
  ort::check(api().set_log_id(options, config.name.c_str()));
  if (ort::shares_threads()) {
    ort::check(api().disable_session_threads(options));
  } else {
    ort::check(api().set_intra_op_threads(options, threads_or_quota(threads)));
    ort::check(api().set_inter_op_threads(options, threads_or_quota(threads_asked(config, kInterOp))));
  }
  ort::check(api().set_execution_mode(options, static_cast<int>(execution_mode(config))));
  ort::check(config.is_on("enable_mem_arena", true) ? api().enable_arena(options) : api().disable_arena(options));
  ort::check(config.is_on("enable_mem_pattern", true) ? api().enable_memory_pattern(options)
                                                      : api().disable_memory_pattern(options));
  ort::check(api().set_graph_level(options, graph_level(config)));
  for (const auto& [key, value] : idle_workers()) ort::check(api().add_session_entry(options, key, value));
  ort::check(api().add_session_entry(options, kHalfEntry, "0"));
  for (const auto& [key, value] : config.json["parameters"].members()) {
    if (key.rfind("session.", 0) != 0 && key != kHalfEntry) continue;
    ort::check(api().add_session_entry(options, key.c_str(), value["string_value"].text().c_str()));
  }
  return kept;
}

ort::RunOptionsPtr run_options(const Config& config) {
  constexpr const char* kKey = "memory.enable_memory_arena_shrinkage";
  const std::string& value = config.parameter(kKey);
  if (value.empty()) return nullptr;
  ort::RunOptions* options = nullptr;
  ort::check(api().create_run_options(&options));
  ort::RunOptionsPtr kept(options);
  ort::check(api().add_run_entry(options, kKey, value.c_str()));
  return kept;
}

std::filesystem::path model_file(const Config& config) {
  std::filesystem::path path = config.file("model.onnx");
  if (std::filesystem::is_directory(path)) path /= "model.onnx";  // a large model with external data
  if (!std::filesystem::is_regular_file(path)) {
    throw Error(text("no file ", path.string(), "; wanted the ONNX model of version ",
                     config.version_folder.filename().string()),
                TRITONSERVER_ERROR_NOT_FOUND);
  }
  return path;
}

// --- the engine ---

ort::SessionPtr open_session(const Config& config, int threads) {
  std::filesystem::path path = model_file(config);
  ort::OptionsPtr options = session_options(config, threads);
  ort::Session* session = nullptr;
  try {
    ort::check(api().create_session(ort::env(), path.c_str(), options.get(), &session));
  } catch (const Error& error) {
    throw Error(text("ONNX Runtime cannot load ", path.string(), ": ", error.what()));
  }
  return ort::SessionPtr(session);
}

// The sessions of an instance: what a run beside others takes, and what one takes that is alone; null for the same.
struct Sessions {
  std::shared_ptr<ort::Session> usual, alone;
  int64_t warm_runs = 0;  // the first runs, which take the usual one whatever goes on beside
};

class OrtEngine : public Engine {
 public:
  OrtEngine(const Config& config, Sessions sessions)
      : run_options_(run_options(config)), sessions_(std::move(sessions)) {
    const ort::Session* session = sessions_.usual.get();
    append_specs(inputs, session, api().input_count, api().input_name, api().input_type);
    required = inputs.size();
    append_specs(inputs, session, api().optional_count, api().optional_name, api().optional_type);
    append_specs(outputs, session, api().output_count, api().output_name, api().output_type);
    writes_in_place = true;
    check_signature(config, *this);
  }

  void run(const std::vector<InputView>& given, std::vector<OutputView>& wanted) override {
    input_names_.clear(), output_names_.clear(), input_values_.clear(), output_values_.clear();
    values_.clear();
    values_.reserve(given.size() + wanted.size());  // a value that was made can be kept
    for (const InputView& view : given) {
      input_names_.push_back(inputs[view.spec].name.c_str());
      input_values_.push_back(input_value(view));
    }
    for (const OutputView& view : wanted) {
      output_names_.push_back(outputs[view.spec].name.c_str());
      output_values_.push_back(view.in_place ? output_value(view) : nullptr);
    }
    CountedRun run;
    ort::check(api().run(session_for(run), run_options_.get(), input_names_.data(), input_values_.data(),
                         input_values_.size(), output_names_.data(), output_names_.size(), output_values_.data()));
    for (size_t place = 0; place < wanted.size(); ++place) {
      if (!wanted[place].in_place) values_.emplace_back(output_values_[place]);
    }
    for (size_t place = 0; place < wanted.size(); ++place) {
      if (!wanted[place].in_place) read_output(output_values_[place], wanted[place]);
    }
  }

 private:
  ort::Session* session_for(const CountedRun& run) {
    if (sessions_.warm_runs > 0) return --sessions_.warm_runs, sessions_.usual.get();
    return run.alone() && sessions_.alone ? sessions_.alone.get() : sessions_.usual.get();
  }

  const ort::Value* input_value(const InputView& view) {
    return view.strings != nullptr ? string_value(view)
                                   : value_over(view.data, view.bytes, view.shape, inputs[view.spec].type);
  }

  ort::Value* output_value(const OutputView& view) {
    TRITONSERVER_DataType type = outputs[view.spec].type;
    return value_over(view.data, bytes_of(type, view.shape), view.shape, type);
  }

  ort::Value* value_over(const std::byte* data, size_t bytes, const Shape& shape, TRITONSERVER_DataType type) {
    ort::Value* value = nullptr;
    // Inputs are only read; the interface knows no constant memory.
    ort::check(api().create_tensor_over(ort::cpu_memory(), const_cast<std::byte*>(data), bytes, shape.data(),
                                        shape.size(), onnx_type(type), &value));
    values_.emplace_back(value);
    return value;
  }

  ort::Value* string_value(const InputView& view) {
    ort::Allocator* allocator = nullptr;
    ort::check(api().default_allocator(&allocator));
    ort::Value* value = nullptr;
    ort::check(api().create_tensor(allocator, view.shape.data(), view.shape.size(), onnx_type(TRITONSERVER_TYPE_BYTES),
                                   &value));
    values_.emplace_back(value);
    for (size_t element = 0; element < view.strings->size(); ++element) {
      std::string_view text = (*view.strings)[element];
      char* place = nullptr;
      ort::check(api().string_place(value, element, text.size(), &place));
      std::copy(text.begin(), text.end(), place);
    }
    return value;
  }

  void read_output(ort::Value* value, OutputView& view) {
    int is_tensor = 0;
    ort::check(api().is_tensor(value, &is_tensor));
    if (is_tensor == 0) throw Error(text("output '", outputs[view.spec].name, "' is no tensor"));
    ort::ShapeInfo* info = nullptr;
    ort::check(api().shape_info(value, &info));
    ort::ShapeInfoPtr kept(info);
    view.shape = shape_of(info);
    if (outputs[view.spec].type == TRITONSERVER_TYPE_BYTES) return read_strings(value, view);
    void* data = nullptr;
    ort::check(api().tensor_data(value, &data));
    view.data = static_cast<std::byte*>(data);
  }

  static void read_strings(const ort::Value* value, OutputView& view) {
    size_t bytes = 0;
    ort::check(api().string_bytes(value, &bytes));
    std::string content(bytes, '\0');
    auto count = static_cast<size_t>(element_count(view.shape));
    std::vector<size_t> starts(count + 1, bytes);
    ort::check(api().string_content(value, content.data(), bytes, starts.data(), count));
    for (size_t element = 0; element < count; ++element) {
      view.strings.push_back(content.substr(starts[element], starts[element + 1] - starts[element]));
    }
  }

  ort::RunOptionsPtr run_options_;
  Sessions sessions_;
  // Of one run, kept for their memory.
  std::vector<const char*> input_names_, output_names_;
  std::vector<const ort::Value*> input_values_;
  std::vector<ort::Value*> output_values_;
  std::vector<ort::ValuePtr> values_;
};

// Each instance has a session, because ONNX Runtime's threads belong to one. Where the configuration names threads for
// a run that is alone, all instances share two: one with those threads, and one with theirs together.
class OrtNetwork : public Network {
 public:
  explicit OrtNetwork(const Config& config) : config_(config) {
    check_accelerators(config);
    check_threads(config);
    if (!ort::shares_threads()) alone_ = threads_alone(config);
  }

  std::unique_ptr<Engine> open_engine() override {
    const int threads = threads_asked(config_, kIntraOp);
    if (alone_ <= threads || threads == 0) {
      return std::make_unique<OrtEngine>(config_, Sessions{open_session(config_, threads), nullptr, 0});
    }
    Sessions sessions = shared_;
    if (!shared_.usual) {
      // Each of the callers is one of its run's threads, beside those of the session.
      const auto callers = static_cast<int>(instance_count(config_));
      shared_ = {open_session(config_, callers * (threads - 1) + 1), open_session(config_, alone_), warm_runs(config_)};
      // Triton warms one instance after another: the first one the session of a run alone, the others the usual one.
      sessions = shared_;
      sessions.warm_runs = 0;
    }
    return std::make_unique<OrtEngine>(config_, std::move(sessions));
  }

 private:
  const Config& config_;
  int alone_ = 0;
  Sessions shared_;
};

}  // namespace

std::string load_engine(const std::string& library, const Json& settings) {
  constexpr const char* kShared = "enable-global-threadpool";
  ort::SharedThreads threads;
  const std::string& shared = settings[kShared].text();
  threads.on = shared == "1" || shared == "true";
  if (!threads.on && !shared.empty() && shared != "0" && shared != "false") {
    throw Error(text("--backend-config=", kBackend, ",", kShared, ": found '", shared, "', wanted 0 or 1"));
  }
  if (threads.on) {
    threads.intra_op = threads_or_quota(thread_count(kIntraOp, settings[kIntraOp].text()));
    threads.inter_op = threads_or_quota(thread_count(kInterOp, settings[kInterOp].text()));
    warn_of_threads(text(kBackend, " backend: "), kIntraOp, threads.intra_op);
  }
  ort::load(library, threads);
  return text("ONNX Runtime ", ort::version());
}

void close_engine() { ort::close(); }

std::unique_ptr<Network> open_network(const Config& config) { return std::make_unique<OrtNetwork>(config); }

}  // namespace tritonkit
