// What a model's configuration asks of every engine alike.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "error.h"
#include "json.h"
#include "tensor.h"

namespace tritonkit {

struct ConfiguredTensor {
  TensorSpec spec;  // dims as the network sees them: those of `reshape` where there is one, without the batch
  bool optional = false;
};

struct ConfiguredState {
  std::string input, output;
};

struct Config {
  Json json;
  std::string name;
  std::filesystem::path version_folder;
  int64_t max_batch = 0;
  std::vector<ConfiguredTensor> inputs, outputs;
  std::vector<std::string> controls;  // inputs that the sequence batcher adds
  std::vector<ConfiguredState> states;

  bool batched() const { return max_batch > 0; }
  // The shape of a configured tensor with its batch axis.
  Shape full(const ConfiguredTensor& tensor) const;
  // A parameter's `string_value`; empty where there is none.
  const std::string& parameter(const std::string& key) const;
  int64_t whole_number(const std::string& key) const;
  bool is_on(const std::string& key, bool absent) const;
  // `default_model_filename`, else the name given, in the version's folder.
  std::filesystem::path file(const std::string& usual) const;
};

// The content of a file; empty where it cannot be read.
std::string read_file(const std::filesystem::path& file);

// Throws Error where it asks for what no engine here can do.
Config read_config(TRITONBACKEND_Model* model);
Json read_message(TRITONSERVER_Message* message);
// A count of threads; below 0 is 0. Throws Error, which names the setting, where the text is no whole number or more
// than kMostThreads.
int thread_count(const std::string& setting, const std::string& found);
constexpr int kMostThreads = 4096;
// Cores of a container's quota, which does not show in the affinity, as whoever started the server says; 0 where it
// says nothing.
int cores_of_quota();
// Cores that this process may use.
int cores();
// Says in the log where more threads are asked for than there are cores. `where` names the model, `what` the setting.
void warn_of_threads(const std::string& where, const std::string& what, int64_t threads);
int64_t instance_count(const Config& config);

}  // namespace tritonkit
