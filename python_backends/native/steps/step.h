// The shipped steps, for the requests that need no second look. A step leaves what is unusual or wrong to its
// model.py, so that there is one place that knows every case and words every error.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "request.h"

namespace tritonkit {

class Step {
 public:
  virtual ~Step() = default;
  // False leaves the request to Python; nothing of an answer has begun then. Throws Error where the answer cannot be
  // written.
  virtual bool answer(StepRequest& request) = 0;
};

// Null where `config` names no step that is made here. Throws Error where it has a parameter that the step here does
// not know, or one that cannot be read.
std::unique_ptr<Step> make_step(const Config& config);

std::unique_ptr<Step> make_activation(const Config& config);
std::unique_ptr<Step> make_decode_image(const Config& config);
std::unique_ptr<Step> make_labels(const Config& config);
std::unique_ptr<Step> make_normalize(const Config& config);
std::unique_ptr<Step> make_pool(const Config& config);
std::unique_ptr<Step> make_top_k(const Config& config);

// A parameter's number, or `absent` where there is none. Each throws Error where the text is something else, as Python
// may read it nevertheless; `float_number` also where float has no such number.
int64_t whole_number(const Config& config, const std::string& name, int64_t absent);
double number(const Config& config, const std::string& name, double absent);
float float_number(const Config& config, const std::string& name, double absent);

template <typename Value>
void write_values(StepRequest& request, const char* name, TRITONSERVER_DataType type, const Shape& shape,
                  const std::vector<Value>& values) {
  const size_t bytes = values.size() * sizeof(Value);
  std::byte* to = request.output(name, type, shape, bytes);
  if (bytes != 0) std::memcpy(to, values.data(), bytes);
}

}  // namespace tritonkit
