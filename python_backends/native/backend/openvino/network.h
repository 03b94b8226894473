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
  std::unique_ptr<Engine> open_engine() override;

  // The compiled form for a batch size, 0: for any. Null where there is none of that size.
  Compiled* form(int64_t size) const;
  int64_t size_for(int64_t batch) const;

  std::vector<TensorSpec> inputs, outputs;

 private:
  ModelPtr read() const;
  void check_names(const Model* model) const;
  void check_inputs(const Model* model) const;
  void check_outputs(const Model* model) const;
  ModelPtr with_types(const Model* model) const;
  CompiledPtr compile(const Model* model) const;
  Compiled* fixed_form(int64_t size);
  void choose_forms();
  void run_zeros(Request* request, int64_t size) const;

  const Config& config_;
  std::filesystem::path file_;
  CorePtr core_;
  Properties properties_;
  std::map<int64_t, CompiledPtr> forms_;
  Choice choice_;
};

}  // namespace tritonkit::ov
