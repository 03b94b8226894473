// ONNX Runtime's sessions as engines.
#include "engine.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "alone.h"
#include "onnxruntime/graphs.h"
#include "onnxruntime/settings.h"
#include "onnxruntime/signature.h"

namespace tritonkit {

const char* const kBackend = "onnxruntime";

namespace {

using ort::api;

// The sessions of an instance: what a run beside others takes, and what one takes that is alone; null for the same.
struct Sessions {
  SharedSession usual, alone;
  int64_t warm_runs = 0;  // the first runs, which take the usual one whatever goes on beside
};

class OrtEngine : public Engine {
 public:
  OrtEngine(const Config& config, Sessions sessions)
      : run_options_(run_options(config)), sessions_(std::move(sessions)) {
    writes_in_place = true;
    read_signature(config, sessions_.usual.get(), *this);
  }

  void run(const std::vector<InputView>& given, std::vector<OutputView>& wanted) override {
    const CountedRun run;
    run_in(session_for(run), given, wanted);
  }

 protected:
  void run_in(ort::Session* session, const std::vector<InputView>& given, std::vector<OutputView>& wanted) {
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
    ort::check(api().run(session, run_options_.get(), input_names_.data(), input_values_.data(), input_values_.size(),
                         output_names_.data(), output_names_.size(), output_values_.data()));
    for (size_t place = 0; place < wanted.size(); ++place) {
      if (!wanted[place].in_place) values_.emplace_back(output_values_[place]);
    }
    for (size_t place = 0; place < wanted.size(); ++place) {
      if (!wanted[place].in_place) read_output(output_values_[place], wanted[place]);
    }
  }

  // Of the memory where a view's data lie.
  virtual const ort::MemoryInfo* memory_of(bool) const { return ort::cpu_memory(); }
  SharedSession& usual_session() { return sessions_.usual; }

 private:
  ort::Session* session_for(const CountedRun& run) {
    if (sessions_.warm_runs > 0) return --sessions_.warm_runs, sessions_.usual.get();
    return run.alone() && sessions_.alone ? sessions_.alone.get() : sessions_.usual.get();
  }

  const ort::Value* input_value(const InputView& view) {
    return view.strings != nullptr ? string_value(view)
                                   : value_over(view.data, view.bytes, view.shape, inputs[view.spec].type, view.on_gpu);
  }

  ort::Value* output_value(const OutputView& view) {
    TRITONSERVER_DataType type = outputs[view.spec].type;
    return value_over(view.data, bytes_of(type, view.shape), view.shape, type, view.on_gpu);
  }

  ort::Value* value_over(const std::byte* data, size_t bytes, const Shape& shape, TRITONSERVER_DataType type,
                         bool on_gpu) {
    ort::Value* value = nullptr;
    // Inputs are only read; the interface knows no constant memory.
    ort::check(api().create_tensor_over(memory_of(on_gpu), const_cast<std::byte*>(data), bytes, shape.data(),
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

using OpenSession = std::function<SharedSession()>;
using Warn = std::function<void(const std::string&)>;

// On a GPU. Batches are filled up to the sizes that the configuration has; each of them may have a graph.
class CudaEngine : public OrtEngine {
 public:
  CudaEngine(const Config& config, const Placement& placement, SharedSession session, const CudaSettings& settings)
      : OrtEngine(config, {std::move(session), nullptr, 0}), sizes_(settings.sizes) {
    constexpr int kDeviceAllocator = 0, kDefaultMemory = 0;
    ort::MemoryInfo* memory = nullptr;
    ort::check(api().create_memory_info("Cuda", kDeviceAllocator, placement.device, kDefaultMemory, &memory));
    memory_.reset(memory);
    takes_gpu = true;
  }

  // Where they cannot be captured the runs go to a session without graphs, which is opened then.
  void set_graphs(std::unique_ptr<Graphs> graphs, OpenSession without, Warn warn) {
    graphs_ = std::move(graphs);
    open_without_ = std::move(without);
    warn_ = std::move(warn);
  }

  int64_t rows_for(int64_t batch) const override {
    const auto size = std::lower_bound(sizes_.begin(), sizes_.end(), batch);
    return size == sizes_.end() ? batch : *size;
  }

  void run(const std::vector<InputView>& given, std::vector<OutputView>& wanted) override {
    if (graphs_) capture();
    if (graphs_) return graphs_->run(given, wanted);
    if (!usual_session()) usual_session() = open_without_();
    const auto running = cuda::while_running();
    // It takes no cores from a run on the CPU, so it is not counted.
    run_in(usual_session().get(), given, wanted);
  }

 protected:
  const ort::MemoryInfo* memory_of(bool on_gpu) const override { return on_gpu ? memory_.get() : ort::cpu_memory(); }

 private:
  // A session whose capture failed is not used any more: nobody promises what state it is in. It gives its memory back
  // before the other one is opened.
  void capture() {
    try {
      graphs_->capture();
    } catch (const Error& error) {
      warn_(text("is served without CUDA graphs by one of its instances: a capture failed: ", error.what()));
      graphs_.reset();
      usual_session().reset();
    }
  }

  const std::vector<int64_t> sizes_;
  ort::MemoryInfoPtr memory_;
  std::unique_ptr<Graphs> graphs_;
  OpenSession open_without_;
  Warn warn_;
};

// Each instance has a session, because ONNX Runtime's threads belong to one. Where the configuration names threads for
// a run that is alone, all instances share two: one with those threads, and one with theirs together.
class OrtNetwork : public Network {
 public:
  explicit OrtNetwork(const Config& config) : config_(config) {
    check_accelerators(config);
    check_threads(config);
    if (wants_tensorrt(config) && config.json["optimization"]["cuda"]["graphs"].is_true()) {
      warn("is served without CUDA graphs: TensorRT's engines run it");
    }
    if (!ort::shares_threads()) alone_ = threads_alone(config);
  }

  std::unique_ptr<Engine> open_engine(const Placement& placement) override {
    return placement.gpu ? open_on_device(placement) : open_on_cpu();
  }

 private:
  std::unique_ptr<Engine> open_on_cpu() {
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

  // With graphs each instance has a session: one captures in a stream of its own, and no second run may go on
  // meanwhile. Without, the instances of a device share one and so its weights: ONNX Runtime gives each run a stream.
  std::unique_ptr<Engine> open_on_device(const Placement& placement) {
    const CudaSettings settings(config_);
    if (settings.graphs && why_no_graphs_.empty()) {
      auto engine = open_with_graphs(placement, settings);
      if (engine) return engine;
      warn(text("is served without CUDA graphs: ", why_no_graphs_));
    }
    auto engine = std::make_unique<CudaEngine>(config_, placement, open_without_graphs(placement, settings), settings);
    if (!settings.tensorrt) warn_of_convolutions(*engine);
    return engine;
  }

  // Also by instances that run already.
  SharedSession open_without_graphs(const Placement& placement, const CudaSettings& settings) {
    const std::lock_guard<std::mutex> alone(by_device_mutex_);
    SharedSession& session = by_device_[placement.device];
    if (!session) session = open_on_gpu(config_, placement, settings, false);
    return session;
  }

  // Null where there can be no graphs; the other instances need not try.
  std::unique_ptr<Engine> open_with_graphs(const Placement& placement, const CudaSettings& settings) {
    SharedSession session;
    try {
      session = open_on_gpu(config_, placement, settings, true);
    } catch (const Error& error) {
      if (!refuses_graphs(error)) throw;
      why_no_graphs_ = has_control_flow(error) ? "it has control flow (If, Loop or Scan)"
                                               : why_partly_elsewhere(placement, settings);
      return nullptr;
    }
    auto engine = std::make_unique<CudaEngine>(config_, placement, session, settings);
    why_no_graphs_ = Graphs::why_not(config_, session.get(), *engine);
    if (!why_no_graphs_.empty()) return nullptr;
    engine->set_graphs(
        std::make_unique<Graphs>(config_, placement, session, *engine, settings),
        [this, placement, settings] { return open_without_graphs(placement, settings); },
        [this](const std::string& what) { warn(what); });
    return engine;
  }

  // A tensor that both the CPU and the GPU read is copied, although no node is elsewhere.
  std::string why_partly_elsewhere(const Placement& placement, const CudaSettings& settings) const {
    const std::string nodes = lacking_nodes(config_, placement, settings);
    return nodes.empty() ? "ONNX Runtime copies tensors between the GPU and the CPU"
                         : "the CUDA provider lacks " + nodes;
  }

  void warn_of_convolutions(const Engine& engine) {
    if (std::exchange(has_warned_, true)) return;
    const bool is_free = std::any_of(engine.inputs.begin(), engine.inputs.end(), [](const TensorSpec& spec) {
      return std::any_of(spec.dims.begin(), spec.dims.end(), [](int64_t size) { return size < 0; });
    });
    if (!is_free || !has_convolution(config_)) return;
    warn(
        "has convolutions and free sizes, without CUDA graphs: cuDNN plans a convolution again whenever a size changes,"
        " 0.25 s for ResNet-50 on an H100; fix all sizes but the batch and set optimization.cuda.graphs");
  }

  void warn(const std::string& what) const { log(TRITONSERVER_LOG_WARN, text("model '", config_.name, "' ", what)); }

  const Config& config_;
  int alone_ = 0;
  Sessions shared_;
  std::mutex by_device_mutex_;
  std::map<int, SharedSession> by_device_;  // without graphs
  std::string why_no_graphs_;               // empty where there are some, or nobody has tried
  bool has_warned_ = false;                 // of convolutions
};

}  // namespace

std::string load_engine(const std::string& library, const Json& settings) {
  constexpr const char* kShared = "enable-global-threadpool";
  ort::SharedThreads threads;
  const std::string& shared = settings[kShared].text();
  set_tensorrt(settings);
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

void try_gpu() {
  ort::SessionOptions* options = nullptr;
  ort::check(api().create_session_options(&options));
  const ort::OptionsPtr kept(options);
  append_cuda(options, CudaSettings(Config()), 0, false);
  ort::try_session(options);
}

std::unique_ptr<Network> open_network(const Config& config) { return std::make_unique<OrtNetwork>(config); }

}  // namespace tritonkit
