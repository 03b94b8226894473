// The shipped steps, for the requests that need no second look. A step leaves what is unusual or wrong to its
// model.py, so that there is one place that knows every case and words every error.
#pragma once

#include <memory>
#include <string>

#include "request.h"

namespace tritonkit {

class Step {
 public:
  virtual ~Step() = default;
  // False leaves the request to Python; nothing of an answer has begun then. Throws Error where the answer cannot be
  // written.
  virtual bool answer(StepRequest& request) = 0;
};

// Null where `config` names no step that is made here. Throws Error where its parameters cannot be read.
std::unique_ptr<Step> make_step(const Config& config);

std::unique_ptr<Step> make_decode_image(const Config& config);
std::unique_ptr<Step> make_mean_pool(const Config& config);
std::unique_ptr<Step> make_top_k(const Config& config);

}  // namespace tritonkit
