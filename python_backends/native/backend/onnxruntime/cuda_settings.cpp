#include "onnxruntime/cuda_settings.h"

#include <algorithm>
#include <array>
#include <set>

#include "cuda.h"

namespace tritonkit {
namespace {

using ort::api;
using Option = ProviderOption;

// By their numbers as NVIDIA's backend has them.
constexpr std::array<const char*, 3> kSearches{"EXHAUSTIVE", "HEURISTIC", "DEFAULT"};
constexpr std::array<const char*, 2> kStrategies{"kNextPowerOfTwo", "kSameAsRequested"};

// Those of onnxruntime/core/providers/cuda/cuda_execution_provider_info.cc that a configuration may decide: neither the
// device nor addresses in this process.
constexpr std::array<const char*, 13> kOptions{
    "arena_extend_strategy",
    "cudnn_conv1d_pad_to_nc1d",
    "cudnn_conv_algo_search",
    "cudnn_conv_use_max_workspace",
    "do_copy_in_default_stream",
    "enable_skip_layer_norm_strict_mode",
    "fuse_conv_bias",
    "gpu_mem_limit",
    "prefer_nhwc",
    "sdpa_kernel",
    "tunable_op_enable",
    "tunable_op_tuning_enable",
    "use_tf32",
};

bool is_option(const std::string& name) { return std::find(kOptions.begin(), kOptions.end(), name) != kOptions.end(); }

// A name, or its number.
template <size_t count>
std::string one_of(const std::array<const char*, count>& names, const std::string& option, const std::string& found) {
  std::string wanted;
  for (size_t place = 0; place < count; ++place) {
    if (found == names[place] || found == std::to_string(place)) return names[place];
    wanted += text(place == 0 ? "" : ", ", names[place]);
  }
  throw Error(text("the CUDA provider's ", option, ": found '", found, "', wanted one of ", wanted));
}

std::string value_of(const std::string& option, const std::string& found) {
  if (option == "cudnn_conv_algo_search") return one_of(kSearches, option, found);
  if (option == "arena_extend_strategy") return one_of(kStrategies, option, found);
  return found;
}

std::string unknown(const std::string& option) {
  std::string known;
  for (const char* name : kOptions) known += text(known.empty() ? "" : ", ", name);
  return text("the CUDA provider's option '", option, "' found in gpu_execution_accelerator 'cuda'; wanted ", known,
              "; optimization.cuda.graphs and instance_group decide on graphs and device");
}

// The last of two equal names counts.
std::vector<Option> options_of(const Config& config) {
  // Exhaustive, the engine's own default, tries all algorithms for each size that is new; memory that is asked for in
  // powers of two is never given back.
  std::vector<Option> options{{"cudnn_conv_algo_search", "HEURISTIC"}, {"arena_extend_strategy", "kSameAsRequested"}};
  for (const char* option : kOptions) {
    const std::string& value = config.parameter(option);
    if (!value.empty()) options.emplace_back(option, value_of(option, value));
  }
  const Json& accelerators = config.json["optimization"]["execution_accelerators"][kGpuAccelerators];
  for (const Json& entry : accelerators.items()) {
    if (entry["name"].text() != "cuda") continue;
    for (const auto& [option, value] : entry["parameters"].members()) {
      if (!is_option(option)) throw Error(unknown(option));
      options.emplace_back(option, value_of(option, value.text()));
    }
  }
  return options;
}

// 1, 2, 4 ... and the largest batch.
std::set<int64_t> powers_of_two(int64_t max_batch) {
  std::set<int64_t> sizes{max_batch};
  for (int64_t size = 1; size < max_batch; size *= 2) sizes.insert(size);
  return sizes;
}

std::vector<int64_t> sizes_of(const Config& config, bool graphs) {
  constexpr const char* kField = "optimization.cuda.graph_spec";
  const Json& specs = config.json["optimization"]["cuda"]["graph_spec"];
  std::set<int64_t> sizes;
  for (const Json& spec : specs.items()) {
    if (!spec["input"].empty()) throw Error(text(kField, ": input found; wanted batch_size alone"));
    const int64_t size = spec["batch_size"].integer();
    const int64_t least = config.batched() ? 1 : 0;
    if (size < least || size > config.max_batch) {
      throw Error(
          text(kField, ": found batch_size ", size, ", wanted ", least, " to max_batch_size ", config.max_batch));
    }
    sizes.insert(size);
  }
  if (!config.batched()) return {};
  if (sizes.empty() && graphs) sizes = powers_of_two(config.max_batch);
  if (!sizes.empty() && *sizes.rbegin() != config.max_batch) {
    throw Error(text(kField, ": the largest batch_size is ", *sizes.rbegin(), ", wanted max_batch_size ",
                     config.max_batch, ", so that each batch fits one"));
  }
  return {sizes.begin(), sizes.end()};
}

}  // namespace

CudaSettings::CudaSettings(const Config& config)
    : options(options_of(config)), graphs(config.json["optimization"]["cuda"]["graphs"].is_true()) {
  if (wants_tensorrt(config)) {
    tensorrt.emplace(config);
    graphs = false;
  }
  sizes = sizes_of(config, graphs);
}

// The provider is what an instance on a GPU runs on; as an accelerator it only brings its options.
void check_accelerators(const Config& config) {
  const Json& accelerators = config.json["optimization"]["execution_accelerators"];
  for (const char* device : {"cpu_execution_accelerator", kGpuAccelerators}) {
    for (const Json& entry : accelerators[device].items()) {
      const std::string& name = entry["name"].text();
      if (device == std::string_view(kGpuAccelerators) && (name == "cuda" || name == kTensorRt)) continue;
      throw Error(
          text("optimization.execution_accelerators.", device, " '", name,
               "' found; this backend has ONNX Runtime's CPU, CUDA and TensorRT providers only: remove it, or use "
               "NVIDIA's image"));
    }
  }
}

void require_gpu() {
  if (cuda::device_count() == 0) {
    throw Error("instance kind GPU found, and this server sees no GPU: look at nvidia-smi, or use kind KIND_CPU");
  }
}

void append_cuda(ort::SessionOptions* options, const CudaSettings& settings, int device, bool graphs) {
  require_gpu();
  std::vector<Option> wanted = settings.options;
  wanted.emplace_back("device_id", std::to_string(device));
  if (graphs) wanted.emplace_back("enable_cuda_graph", "1");
  std::vector<const char*> keys, values;
  for (const auto& [key, value] : wanted) keys.push_back(key.c_str()), values.push_back(value.c_str());
  ort::CudaOptions* made = nullptr;
  try {
    ort::check(api().create_cuda_options(&made));
  } catch (const Error& error) {
    throw Error(text("instance kind GPU found, and ONNX Runtime ", ort::version(),
                     " has no CUDA provider: install it by ",
                     "`tritonkit server install --gpu`, or use kind KIND_CPU (", error.what(), ")"));
  }
  ort::CudaOptionsPtr kept(made);
  try {
    ort::check(api().update_cuda_options(made, keys.data(), values.data(), keys.size()));
    ort::check(api().append_cuda(options, made));
  } catch (const Error& error) {
    throw Error(text("instance kind GPU found, and ONNX Runtime ", ort::version(), " cannot use GPU ", device,
                     "; `tritonkit doctor` looks for the cause: ", error.what()));
  }
}

}  // namespace tritonkit
