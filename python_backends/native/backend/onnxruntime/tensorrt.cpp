#include "onnxruntime/tensorrt.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

namespace tritonkit {
namespace {

using ort::api;

enum class Kind { kFlag, kNumber, kText };

struct Known {
  const char* name;
  Kind kind;
};

// Those of onnxruntime/core/providers/tensorrt/tensorrt_execution_provider_info.cc that a configuration may decide: no
// device, no addresses in this process, no libraries to load, no files to write but those of the two caches.
constexpr std::array<Known, 24> kOptions{{
    {"trt_auxiliary_streams", Kind::kNumber},
    {"trt_bf16_enable", Kind::kFlag},
    {"trt_build_heuristics_enable", Kind::kFlag},
    {"trt_builder_optimization_level", Kind::kNumber},
    {"trt_context_memory_sharing_enable", Kind::kFlag},
    {"trt_detailed_build_log", Kind::kFlag},
    {"trt_engine_cache_enable", Kind::kFlag},
    {"trt_engine_cache_path", Kind::kText},
    {"trt_engine_hw_compatible", Kind::kFlag},
    {"trt_force_sequential_engine_build", Kind::kFlag},
    {"trt_fp16_enable", Kind::kFlag},
    {"trt_int8_enable", Kind::kFlag},
    {"trt_layer_norm_fp32_fallback", Kind::kFlag},
    {"trt_max_partition_iterations", Kind::kNumber},
    {"trt_max_workspace_size", Kind::kNumber},
    {"trt_min_subgraph_size", Kind::kNumber},
    {"trt_op_types_to_exclude", Kind::kText},
    {"trt_preview_features", Kind::kText},
    {"trt_profile_max_shapes", Kind::kText},
    {"trt_profile_min_shapes", Kind::kText},
    {"trt_profile_opt_shapes", Kind::kText},
    {"trt_sparsity_enable", Kind::kFlag},
    {"trt_tactic_sources", Kind::kText},
    {"trt_timing_cache_enable", Kind::kFlag},
}};

// NVIDIA's backend has two settings by names of its own.
constexpr const char *kPrecision = "precision_mode", *kWorkspace = "max_workspace_size_bytes";
constexpr std::array<std::pair<const char*, const char*>, 4> kPrecisions{
    {{"FP32", ""}, {"FP16", "trt_fp16_enable"}, {"BF16", "trt_bf16_enable"}, {"INT8", "trt_int8_enable"}}};
constexpr std::array<const char*, 3> kProfiles{"trt_profile_min_shapes", "trt_profile_opt_shapes",
                                               "trt_profile_max_shapes"};
constexpr const char *kKeep = "trt_engine_cache_enable", *kFolder = "trt_engine_cache_path",
                     *kKeepTimings = "trt_timing_cache_enable";

std::string named(const std::string& option) { return text("the TensorRT provider's ", option); }

std::string unknown(const std::string& option) {
  std::string known = text(kPrecision, ", ", kWorkspace);
  for (const Known& one : kOptions) known += text(", ", one.name);
  return text("the TensorRT provider's option '", option, "' found in ", kGpuAccelerators, " '", kTensorRt,
              "'; wanted ", known, "; instance_group decides on the device");
}

std::string flag_of(const std::string& option, const std::string& found) {
  if (found == "1" || found == "true" || found == "True") return "1";
  if (found == "0" || found == "false" || found == "False") return "0";
  throw Error(text(named(option), ": found '", found, "', wanted 0 or 1"));
}

void check_number(const std::string& option, const std::string& found) {
  constexpr size_t kMostDigits = 18;
  const bool is_below_zero = !found.empty() && found.front() == '-';
  const std::string digits = found.substr(is_below_zero ? 1 : 0);
  const bool is_number =
      !digits.empty() && digits.size() <= kMostDigits && digits.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) throw Error(text(named(option), ": found '", found, "', wanted a whole number"));
}

ProviderOption precision_of(const std::string& found) {
  std::string wanted;
  for (const auto& [name, option] : kPrecisions) {
    if (found == name) return {option, "1"};
    wanted += text(wanted.empty() ? "" : ", ", name);
  }
  throw Error(text(named(kPrecision), ": found '", found, "', wanted one of ", wanted));
}

// By ONNX Runtime's own name; the name is empty if there is nothing to set.
ProviderOption option_of(const std::string& name, const std::string& value) {
  if (name == kPrecision) return precision_of(value);
  const std::string option = name == kWorkspace ? "trt_max_workspace_size" : name;
  const auto known =
      std::find_if(kOptions.begin(), kOptions.end(), [&](const Known& one) { return option == one.name; });
  if (known == kOptions.end()) throw Error(unknown(name));
  if (known->kind == Kind::kFlag) return {option, flag_of(name, value)};
  if (known->kind == Kind::kNumber) check_number(name, value);
  return {option, value};
}

std::string dims_text(const Shape& dims, int64_t batch, bool batched) {
  std::string joined = batched ? std::to_string(batch) : "";
  for (int64_t size : dims) joined += text(joined.empty() ? "" : "x", size);
  return joined;
}

bool is_free(const Shape& dims) {
  return std::any_of(dims.begin(), dims.end(), [](int64_t size) { return size < 0; });
}

// The batch is the only axis whose sizes a configuration has.
std::string why_no_profiles_of(const Config& config) {
  if (!config.controls.empty() || !config.states.empty()) return "its sequences have inputs of their own";
  for (const ConfiguredTensor& input : config.inputs) {
    const TensorSpec& spec = input.spec;
    if (is_free(spec.dims)) return text("input '", spec.name, "' has ", to_text(spec.dims), ", where -1 is any size");
    if (spec.name.find_first_of(",:") != std::string::npos) {
      return text("a profile cannot name input '", spec.name, "': ',' and ':' separate its parts");
    }
  }
  return "";
}

// One item to the largest batch, tuned for the largest: that is where throughput is wanted.
std::vector<ProviderOption> profiles_of(const Config& config) {
  std::vector<ProviderOption> profiles;
  for (size_t place = 0; place < kProfiles.size(); ++place) {
    std::string shapes;
    for (const ConfiguredTensor& input : config.inputs) {
      shapes += text(shapes.empty() ? "" : ",", input.spec.name, ":",
                     dims_text(input.spec.dims, place == 0 ? 1 : config.max_batch, config.batched()));
    }
    profiles.emplace_back(kProfiles[place], shapes);
  }
  return profiles;
}

struct Libraries {
  std::vector<std::string> names{"libnvinfer.so.10", "libnvonnxparser.so.10"};  // where the server names none
  std::filesystem::path folder;
  std::mutex mutex;
  void* nvinfer = nullptr;  // once all are open
};

Libraries& libraries() {
  static Libraries opened;
  return opened;
}

// They stay open: the provider, which ONNX Runtime loads by itself, finds them by their names.
void* open_libraries() {
  Libraries& wanted = libraries();
  const std::lock_guard<std::mutex> alone(wanted.mutex);
  if (wanted.nvinfer != nullptr) return wanted.nvinfer;
  void* first = nullptr;
  for (const std::string& name : wanted.names) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      throw Error(text("accelerator '", kTensorRt, "' found, and TensorRT 10 cannot be used: ", dlerror(),
                       "; docs/gpu.md has the packages; or remove the accelerator"),
                  TRITONSERVER_ERROR_UNSUPPORTED);
    }
    if (first == nullptr) first = handle;
  }
  return wanted.nvinfer = first;
}

}  // namespace

TensorRtSettings::TensorRtSettings(const Config& config) {
  const Json& accelerators = config.json["optimization"]["execution_accelerators"][kGpuAccelerators];
  for (const Json& entry : accelerators.items()) {
    if (entry["name"].text() != kTensorRt) continue;
    for (const auto& [name, value] : entry["parameters"].members()) {
      auto [option, setting] = option_of(name, value.text());
      const bool is_profile = std::find(kProfiles.begin(), kProfiles.end(), option) != kProfiles.end();
      if (option == kKeep) {
        keeps_engines = setting == "1";
      } else if (option == kKeepTimings) {
        keeps_timings = setting == "1";
      } else if (option == kFolder) {
        folder = setting;
      } else if (!option.empty()) {
        (is_profile ? profiles : options).emplace_back(option, setting);
      }
    }
  }
  if (!folder.empty() && !folder.is_absolute()) {
    throw Error(text(named(kFolder), ": found '", folder.string(), "', wanted an absolute path"));
  }
  if (!profiles.empty() && profiles.size() < kProfiles.size()) {
    throw Error(text(named(profiles.front().first), " found without the others; wanted ", kProfiles[0], ", ",
                     kProfiles[1], " and ", kProfiles[2]));
  }
  if (!profiles.empty()) return;
  why_no_profiles = why_no_profiles_of(config);
  if (why_no_profiles.empty() && config.batched()) profiles = profiles_of(config);
}

bool wants_tensorrt(const Config& config) {
  const auto& accelerators = config.json["optimization"]["execution_accelerators"][kGpuAccelerators].items();
  return std::any_of(accelerators.begin(), accelerators.end(),
                     [](const Json& entry) { return entry["name"].text() == kTensorRt; });
}

void set_tensorrt(const Json& settings) {
  const std::string& paths = settings["tensorrt-libraries"].text();
  if (!paths.empty()) libraries().names = split_paths(paths);
  libraries().folder = settings["tensorrt-cache"].text();
}

const std::filesystem::path& engines_folder() { return libraries().folder; }

int tensorrt_version() {
  void* symbol = dlsym(open_libraries(), "getInferLibVersion");
  int (*version)() = nullptr;
  std::memcpy(&version, &symbol, sizeof version);
  if (version == nullptr)
    throw Error(text(libraries().names.front(),
                     " is not TensorRT's library: it has no getInferLibVersion; reinstall the package (docs/gpu.md)"));
  return version();
}

void append_tensorrt(ort::SessionOptions* options, const TensorRtSettings& settings, int device,
                     const std::vector<ProviderOption>& further) {
  open_libraries();
  std::vector<ProviderOption> wanted = settings.options;
  wanted.insert(wanted.end(), further.begin(), further.end());
  wanted.emplace_back("device_id", std::to_string(device));
  std::vector<const char*> keys, values;
  for (const auto& [key, value] : wanted) keys.push_back(key.c_str()), values.push_back(value.c_str());
  try {
    ort::TensorRtOptions* made = nullptr;
    ort::check(api().create_tensorrt_options(&made));
    const ort::TensorRtOptionsPtr kept(made);
    ort::check(api().update_tensorrt_options(made, keys.data(), values.data(), keys.size()));
    ort::check(api().append_tensorrt(options, made));
  } catch (const Error& error) {
    throw Error(text("accelerator '", kTensorRt, "' found, and ONNX Runtime ", ort::version(),
                     " cannot use TensorRT on GPU ", device, ": ", error.what()));
  }
}

// ONNX Runtime has no code of its own for it.
bool lacks_profiles(const Error& error) {
  return std::string_view(error.what()).find("no associated shape profiles") != std::string_view::npos;
}

}  // namespace tritonkit
