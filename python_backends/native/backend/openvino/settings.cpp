#include "openvino/settings.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "alone.h"

namespace tritonkit::ov {
namespace {

constexpr const char* kPrecision = "INFERENCE_PRECISION_HINT";

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) { return std::toupper(letter); });
  return text;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

[[noreturn]] void unfit(const std::string& key, const std::string& found, const std::string& wanted) {
  throw Error(text("parameter ", key, ": found '", found, "', wanted ", wanted));
}

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

void take_number(const Config& config, const std::string& key, Properties& found) {
  const std::string& value = config.parameter(key);
  if (value.empty()) return;
  if (!is_number(value)) unfit(key, value, "a non-negative number");
  int threads = thread_count(text("parameter ", key), value);
  if (threads > 0) found[key] = std::to_string(threads);
  warn_of_threads(text("model '", config.name, "': "), key, threads);
}

// Without a hint OpenVINO computes in bfloat16 wherever the processor can: an answer would depend on the machine, and
// on what is computed in the same batch.
constexpr const char* kDefaultPrecision = "f32";

// The precision to compute in that an IR file asks for in its runtime options; empty for none.
std::string precision_of_file(const std::filesystem::path& file) {
  if (file.extension() != ".xml") return "";
  const std::string xml = read_file(file);
  size_t options = xml.rfind("<runtime_options>");
  if (options == std::string::npos) return "";
  size_t entry = xml.find(text("<", kPrecision, " value=\""), options);
  if (entry == std::string::npos) return "";
  size_t start = xml.find('"', entry) + 1;
  return xml.substr(start, xml.find('"', start) - start);
}

// The precision that the configuration asks for; empty for none.
std::string precision_of_config(const Config& config) {
  static const std::set<std::string> kPrecisions{"", "F32", "BF16", "F16"};
  const std::string &half = config.parameter("HINT_BF16"), &asked = config.parameter(kPrecision);
  if (!half.empty() && upper(half) != "YES") unfit("HINT_BF16", half, "YES");
  if (kPrecisions.count(upper(asked)) == 0) unfit(kPrecision, asked, "f32/bf16/f16");
  if (half.empty()) return lower(asked);
  if (!asked.empty() && upper(asked) != "BF16") {
    unfit(kPrecision, asked, "bf16 as HINT_BF16 says, or one of the two alone");
  }
  return "bf16";
}

std::string precision(const Config& config, const std::filesystem::path& file) {
  std::string asked = precision_of_config(config);
  if (asked.empty()) asked = precision_of_file(file);
  return asked.empty() ? kDefaultPrecision : asked;
}

}  // namespace

std::filesystem::path model_file(const Config& config) {
  std::filesystem::path path = config.file("model.xml");
  if (!std::filesystem::exists(path)) {
    throw Error(text("no file ", path.string(), "; wanted the OpenVINO model of version ",
                     config.version_folder.filename().string()),
                TRITONSERVER_ERROR_NOT_FOUND);
  }
  return path;
}

void check_device(const Config& config) {
  std::string device = upper(config.parameter("TARGET_DEVICE"));
  if (!device.empty() && device != "CPU") {
    throw Error(
        text("parameter TARGET_DEVICE: found ", device, ", wanted CPU: this openvino backend has no other device"));
  }
}

bool is_yes(const Config& config, const std::string& key) { return upper(config.parameter(key)) == "YES"; }

bool pads_batches(const Config& config) { return !config.batched() || is_yes(config, "ENABLE_BATCH_PADDING"); }

std::vector<int64_t> batch_sizes(const Config& config) {
  if (!config.batched()) return {};
  std::set<int64_t> sizes{1, config.max_batch};
  for (const Json& preferred : config.json["dynamic_batching"]["preferred_batch_size"].items()) {
    if (preferred.integer() <= config.max_batch) sizes.insert(preferred.integer());
  }
  return {sizes.begin(), sizes.end()};
}

// The instances of a model share one set of threads and streams.
Properties properties(const Config& config, const std::filesystem::path& file) {
  Properties found;
  found[kPrecision] = precision(config, file);
  if (int there = cores(); there > 0) found["INFERENCE_NUM_THREADS"] = std::to_string(there);
  take_number(config, "INFERENCE_NUM_THREADS", found);
  take_number(config, "COMPILATION_NUM_THREADS", found);
  // Pinned threads of several models all take the first cores.
  found["ENABLE_CPU_PINNING"] = "NO";
  std::string hint = upper(config.parameter("PERFORMANCE_HINT"));
  if (!hint.empty()) {
    static const std::set<std::string> kHints{"LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT"};
    if (kHints.count(hint) == 0) unfit("PERFORMANCE_HINT", hint, "LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT");
    found["PERFORMANCE_HINT"] = hint;
  }
  std::string streams = upper(config.parameter("NUM_STREAMS"));
  if (!streams.empty()) {
    if (streams != "AUTO" && streams != "NUMA" && !is_number(streams))
      unfit("NUM_STREAMS", streams, "either AUTO/NUMA/<int_value>");
    found["NUM_STREAMS"] = streams;
  } else if (hint.empty() && instance_count(config) > 1) {
    found["NUM_STREAMS"] = std::to_string(instance_count(config));
  }
  return found;
}

Properties properties_alone(const Config& config, const Properties& usual) {
  const int64_t threads = threads_alone(config);
  auto streams = usual.find("NUM_STREAMS"), all = usual.find("INFERENCE_NUM_THREADS");
  if (threads == 0 || streams == usual.end() || !is_number(streams->second) || all == usual.end()) return {};
  // What a run has beside others is its stream's share.
  int64_t shares = thread_count("parameter NUM_STREAMS", streams->second);
  if (threads * shares <= std::stoll(all->second)) return {};
  Properties found = usual;
  found["NUM_STREAMS"] = "1";
  found["INFERENCE_NUM_THREADS"] = std::to_string(threads);
  return found;
}

}  // namespace tritonkit::ov
