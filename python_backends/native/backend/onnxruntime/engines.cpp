#include "onnxruntime/engines.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "onnxruntime/settings.h"

namespace tritonkit {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnfinished = "unfinished";

// FNV-1a, which tells contents apart that differ by chance; nobody gains from two that are equal.
class Digest {
 public:
  void add(std::string_view content) {
    for (const char byte : content) value_ = (value_ ^ static_cast<unsigned char>(byte)) * kPrime;
  }

  void add_file(const fs::path& path) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(path.c_str(), "rb"), std::fclose);
    std::vector<char> part(1 << 16);
    while (stream != nullptr) {
      const size_t bytes = std::fread(part.data(), 1, part.size(), stream.get());
      if (bytes == 0) break;
      add({part.data(), bytes});
    }
  }

  std::string hexadecimal() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value_));
    return digits;
  }

 private:
  static constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t value_ = 0xcbf29ce484222325;
};

// The network and the files with its weights, in a fixed order; a build's manifest says nothing that a server computes.
std::vector<fs::path> files_of(const Config& config) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(config.version_folder)) {
    if (entry.is_regular_file() && entry.path().extension() != ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string key_of(const Config& config, const TensorRtSettings& settings, int version) {
  Digest digest;
  digest.add(text("ONNX Runtime ", ort::version(), " TensorRT ", version, "\n"));
  for (const auto* options : {&settings.options, &settings.profiles}) {
    for (const auto& [name, value] : *options) digest.add(text(name, "=", value, "\n"));
  }
  for (const fs::path& file : files_of(config)) {
    digest.add(text(file.lexically_relative(config.version_folder).string(), "\n"));
    digest.add_file(file);
  }
  return digest.hexadecimal();
}

}  // namespace

EngineFolder::EngineFolder(const Config& config, const TensorRtSettings& settings)
    : keeps_engines_(settings.keeps_engines), keeps_timings_(settings.keeps_timings) {
  const int version = tensorrt_version();
  const fs::path& base = settings.folder.empty() ? engines_folder() : settings.folder;
  if (base.empty() || (!keeps_engines_ && !keeps_timings_)) {
    log(TRITONSERVER_LOG_INFO, text("model '", config.name, "': TensorRT's engines are built at each start"));
    return;
  }
  model_ = base / config.name;
  engines_ = model_ / key_of(config, settings, version);
  timings_ = model_ / text("timings-", version);
  if (!prepare()) {
    log(TRITONSERVER_LOG_WARN, text("model '", config.name, "': TensorRT's engines are built at each start: ",
                                    engines_.string(), " cannot be written: ", std::strerror(errno)));
    model_.clear();
    return;
  }
  log(TRITONSERVER_LOG_INFO, text("model '", config.name, "': TensorRT's engines are kept in ", engines_.string()));
}

EngineFolder::~EngineFolder() {
  if (lock_ >= 0) ::close(lock_);
}

bool EngineFolder::lock() {
  lock_ = ::open((model_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) return false;
  while (::flock(lock_, LOCK_EX) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

bool EngineFolder::prepare() {
  std::error_code failed;
  fs::create_directories(model_, failed);
  if (failed) return errno = failed.value(), false;
  if (!lock()) return false;
  if (fs::exists(engines_ / kUnfinished, failed)) {
    fs::remove_all(engines_, failed);
    fs::remove_all(timings_, failed);
  }
  for (const fs::path& folder : {engines_, timings_}) {
    fs::create_directories(folder, failed);
    if (failed) return errno = failed.value(), false;
  }
  const int marker = ::open((engines_ / kUnfinished).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  return marker >= 0 && ::close(marker) == 0;
}

std::vector<ProviderOption> EngineFolder::options() const {
  const bool is_there = !model_.empty();
  std::vector<ProviderOption> options{{"trt_engine_cache_enable", is_there && keeps_engines_ ? "1" : "0"},
                                      {"trt_timing_cache_enable", is_there && keeps_timings_ ? "1" : "0"}};
  if (is_there && keeps_engines_) options.emplace_back("trt_engine_cache_path", engines_.string());
  if (is_there && keeps_timings_) options.emplace_back("trt_timing_cache_path", timings_.string());
  return options;
}

void EngineFolder::finish() {
  std::error_code failed;
  if (!model_.empty()) fs::remove(engines_ / kUnfinished, failed);
}

}  // namespace tritonkit
