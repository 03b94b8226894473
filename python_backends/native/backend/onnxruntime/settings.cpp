#include "onnxruntime/settings.h"

#include <utility>
#include <vector>

namespace tritonkit {
namespace {

using ort::api;

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

int64_t execution_mode(const Config& config) {
  int64_t mode = config.whole_number("execution_mode");
  if (mode != 0 && mode != 1) throw Error(text("parameter execution_mode: found ", mode, ", wanted 0 or 1"));
  return mode;
}

// To wake a worker for each operator takes a good part of a run's time; one that spins until the next run takes a core
// from Triton and from other models. So workers spin for a moment, and within a run alone, where that can be asked for.
std::vector<std::pair<const char*, const char*>> idle_workers() {
  if (!ort::has_short_spins()) return {{"session.intra_op.allow_spinning", "0"}};
  return {{"session.intra_op.spin_duration_us", "50"}, {"session.force_spinning_stop", "1"}};
}

// With "1" ONNX Runtime multiplies FP32 matrices in bfloat16 on ARM processors that can.
constexpr const char* kHalfEntry = "mlas.enable_gemm_fastmath_arm64_bfloat16";

// The libraries of `model_operations`: files next to the network, else as the system's loader finds them, which is all
// that NVIDIA's backend knows. They stay loaded: a session of another instance may run their operators.
void register_operators(const Config& config, ort::SessionOptions* options) {
  const auto& names = config.json["model_operations"]["op_library_filename"].items();
  if (names.empty()) return;
  const std::filesystem::path folder = model_file(config).parent_path();
  for (const Json& name : names) {
    std::filesystem::path library = folder / name.text();
    if (!std::filesystem::is_regular_file(library)) library = name.text();
    void* handle = nullptr;
    try {
      ort::check(api().register_operators(options, library.c_str(), &handle));
    } catch (const Error& error) {
      throw Error(text("model_operations: cannot load ", library.string(), ": ", error.what()));
    }
  }
}

}  // namespace

int threads_asked(const Config& config, const std::string& key) {
  return thread_count(text("parameter ", key), config.parameter(key));
}

int threads_or_quota(int asked) { return asked == 0 ? cores_of_quota() : asked; }

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
  register_operators(config, options);
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

}  // namespace tritonkit
