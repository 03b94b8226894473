#include "config.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace tritonkit {
namespace {

std::vector<ConfiguredTensor> tensors(const Json& entries, const std::string& side) {
  std::vector<ConfiguredTensor> found;
  for (const Json& entry : entries.items()) {
    ConfiguredTensor tensor;
    tensor.spec.name = entry["name"].text();
    tensor.spec.type = type_named(entry["data_type"].text());
    tensor.optional = entry["optional"].is_true();
    const std::string where = text(side, " '", tensor.spec.name, "': ");
    if (entry["is_shape_tensor"].is_true()) {
      throw Error(text(where, "is_shape_tensor found; this backend has no shape tensors, which are TensorRT's"));
    }
    bool reshaped = entry.members().count("reshape") != 0;
    for (const Json& size : (reshaped ? entry["reshape"]["shape"] : entry["dims"]).items()) {
      tensor.spec.dims.push_back(size.integer());
    }
    found.push_back(tensor);
  }
  return found;
}

int64_t whole_number(const std::string& setting, const std::string& found) {
  size_t used = 0;
  try {
    int64_t number = found.empty() ? 0 : std::stoll(found, &used);
    if (used == found.size()) return number;
  } catch (const std::logic_error&) {
  }
  throw Error(text(setting, ": found '", found, "', wanted a whole number"));
}

void check_served_here(const Config& config) {
  for (const char* field : {"batch_input", "batch_output"}) {
    if (!config.json[field].items().empty()) {
      throw Error(text(field, " found; only NVIDIA's onnxruntime backend supports it"));
    }
  }
  for (const Json& entry : config.json["input"].items()) {
    if (entry["allow_ragged_batch"].is_true() && config.parameter("tritonkit.pad").empty()) {
      throw Error(text("input '", entry["name"].text(), "': allow_ragged_batch found without parameter tritonkit.pad;",
                       " only NVIDIA's onnxruntime backend supports it"));
    }
  }
  for (const ConfiguredTensor& input : config.inputs) {
    if (config.batched() && input.optional) {
      throw Error(text("input '", input.spec.name, "': optional is for models with max_batch_size 0 only"));
    }
  }
}

}  // namespace

Shape Config::full(const ConfiguredTensor& tensor) const {
  Shape shape = tensor.spec.dims;
  if (batched()) shape.insert(shape.begin(), -1);
  return shape;
}

const std::string& Config::parameter(const std::string& key) const {
  return json["parameters"][key]["string_value"].text();
}

int64_t Config::whole_number(const std::string& key) const {
  return tritonkit::whole_number(text("parameter ", key), parameter(key));
}

bool Config::is_on(const std::string& key, bool absent) const {
  std::string found = parameter(key);
  std::transform(found.begin(), found.end(), found.begin(), [](unsigned char letter) { return std::tolower(letter); });
  if (found.empty()) return absent;
  if (found == "1" || found == "true" || found == "on") return true;
  if (found == "0" || found == "false" || found == "off") return false;
  throw Error(text("parameter ", key, ": found '", parameter(key), "', wanted 0 or 1"));
}

std::filesystem::path Config::file(const std::string& usual) const {
  const std::string& named = json["default_model_filename"].text();
  return version_folder / (named.empty() ? usual : named);
}

std::string read_file(const std::filesystem::path& file) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "rb"), std::fclose);
  std::string content;
  char part[4096];
  while (stream != nullptr) {
    const size_t bytes = std::fread(part, 1, sizeof part, stream.get());
    if (bytes == 0) break;
    content.append(part, bytes);
  }
  return content;
}

int thread_count(const std::string& setting, const std::string& found) {
  int64_t count = std::max<int64_t>(0, whole_number(setting, found));
  if (count > kMostThreads)
    throw Error(text(setting, ": found ", found, ", wanted at most ", kMostThreads, " threads"));
  return static_cast<int>(count);
}

int cores_of_quota() {
  const char* told = std::getenv("TRITONKIT_CORES");
  return told == nullptr ? 0 : std::clamp(std::atoi(told), 0, kMostThreads);
}

int cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int there = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
  const int quota = cores_of_quota();
  return quota == 0 || (there > 0 && there < quota) ? there : quota;
}

void warn_of_threads(const std::string& where, const std::string& what, int64_t threads) {
  int there = cores();
  if (there == 0 || threads <= there) return;
  log(TRITONSERVER_LOG_WARN, text(where, what, " asks for ", threads, " threads; this server may use ", there,
                                  there == 1 ? " core" : " cores", ", on which they take turns"));
}

int64_t instance_count(const Config& config) {
  int64_t count = 0;
  for (const Json& group : config.json["instance_group"].items()) {
    if (!group["passive"].is_true()) count += group["count"].integer(1);
  }
  return std::max<int64_t>(1, count);
}

Json read_message(TRITONSERVER_Message* message) {
  const char* base = nullptr;
  size_t size = 0;
  check(TRITONSERVER_MessageSerializeToJson(message, &base, &size));
  return Json::parse({base, size});
}

Config read_config(TRITONBACKEND_Model* model) {
  Config config;
  TRITONSERVER_Message* message = nullptr;
  check(TRITONBACKEND_ModelConfig(model, 1, &message));
  struct Delete {
    void operator()(TRITONSERVER_Message* owned) const { log_failure(TRITONSERVER_MessageDelete(owned)); }
  };
  std::unique_ptr<TRITONSERVER_Message, Delete> kept(message);
  config.json = read_message(message);
  const char *name = nullptr, *location = nullptr;
  uint64_t version = 0;
  TRITONBACKEND_ArtifactType kind = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  check(TRITONBACKEND_ModelName(model, &name));
  check(TRITONBACKEND_ModelVersion(model, &version));
  check(TRITONBACKEND_ModelRepository(model, &kind, &location));
  config.name = name;
  config.version_folder = std::filesystem::path(location) / std::to_string(version);
  config.max_batch = config.json["max_batch_size"].integer();
  config.inputs = tensors(config.json["input"], "input");
  config.outputs = tensors(config.json["output"], "output");
  const Json& sequences = config.json["sequence_batching"];
  for (const Json& control : sequences["control_input"].items()) config.controls.push_back(control["name"].text());
  for (const Json& state : sequences["state"].items()) {
    config.states.push_back({state["input_name"].text(), state["output_name"].text()});
  }
  check_served_here(config);
  return config;
}

}  // namespace tritonkit
