// A network read from its file, held against the configuration, compiled at the sizes that are worth it.
#pragma once

#include <map>
#include <mutex>

#include "engine.h"
#include "openvino/api.h"
#include "openvino/choice.h"
#include "openvino/settings.h"

namespace tritonkit::ov {

class OvNetwork : public Network {
 public:
  explicit OvNetwork(const Config& config);
  std::unique_ptr<Engine> open_engine(const Placement& placement) override;

  // Whether there is a form for batches of that size alone; 0: for any.
  bool has(int64_t size) const { return forms_.count(size) != 0; }
  // Throws where there is none. `alone` asks for that of a run that has all cores, and gets the usual one where there
  // is no other.
  Compiled* form(int64_t size, bool alone) const;
  bool differs_alone() const { return !properties_alone_.empty(); }
  int64_t size_for(int64_t batch) const;

  std::vector<TensorSpec> inputs, outputs;

 private:
  struct Form {
    CompiledPtr usual, alone;  // with the instances' threads and streams; with one stream that has all cores
  };

  ModelPtr read() const;
  void check_names(const Model* model) const;
  void check_inputs(const Model* model) const;
  void check_outputs(const Model* model) const;
  ModelPtr with_types(const Model* model) const;
  CompiledPtr compile(const Model* model, const Properties& properties) const;
  ModelPtr fixed_model(int64_t size) const;
  void choose_forms();
  void run_zeros(Request* request, int64_t size) const;

  const Config& config_;
  std::filesystem::path file_;
  CorePtr core_;
  Properties properties_, properties_alone_;  // the latter empty where a run alone is like others
  std::map<int64_t, Form> forms_;
  Choice choice_;
};

}  // namespace tritonkit::ov
