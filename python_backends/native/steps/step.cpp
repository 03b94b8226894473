#include "step.h"

namespace tritonkit {

std::unique_ptr<Step> make_step(const Config& config) {
  const std::string& name = config.parameter("tritonkit.step");
  if (name == "decode_image") return make_decode_image(config);
  if (name == "mean_pool") return make_mean_pool(config);
  if (name == "top_k") return make_top_k(config);
  return nullptr;
}

}  // namespace tritonkit
