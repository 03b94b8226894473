// Logits to scores: what activation_core.py computes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "scores.h"
#include "step.h"

namespace tritonkit {
namespace {

class Activation : public Step {
 public:
  explicit Activation(const Config& config)
      : function_(function_named(config.parameter("function"))),
        temperature_(float_number(config, "temperature", 1)),
        threshold_(float_number(config, "threshold", 0)) {
    if (!(temperature_ > 0)) throw Error("parameter temperature: wanted a number above 0");
  }

  bool answer(StepRequest& request) override {
    const StepInput* logits = request.input("logits");
    if (!request.is_wanted("scores") || logits == nullptr || !are_logits(*logits)) return false;
    scores_.clear();
    row_.resize(static_cast<size_t>(logits->shape[1]));
    const size_t bytes = row_.size() * sizeof(float);
    for (size_t at = 0; at < logits->bytes; at += bytes) {
      std::memcpy(row_.data(), logits->data + at, bytes);
      if (!activate()) return false;
      scores_.insert(scores_.end(), row_.begin(), row_.end());
    }
    write_values(request, "scores", TRITONSERVER_TYPE_FP32, logits->shape, scores_);
    return true;
  }

 private:
  // False where `row_` has no scores.
  bool activate() {
    if (!has_scores(row_, function_)) return false;
    if (function_ == Function::kArgmax) {  // of the logits themselves, which a temperature could make equal
      const auto best = std::max_element(row_.begin(), row_.end()) - row_.begin();
      std::fill(row_.begin(), row_.end(), 0.0F);
      row_[static_cast<size_t>(best)] = 1;
      return true;
    }
    if (temperature_ != 1) {
      for (float& value : row_) value /= temperature_;
      if (!has_scores(row_, function_)) return false;
    }
    if (function_ == Function::kThreshold) {
      for (float& value : row_) value = value >= threshold_ ? 1.0F : 0.0F;
      return true;
    }
    score(function_, &row_);
    return std::all_of(row_.begin(), row_.end(), [](float value) { return std::isfinite(value); });
  }

  Function function_;
  float temperature_, threshold_;
  std::vector<float> row_, scores_;
};

}  // namespace

std::unique_ptr<Step> make_activation(const Config& config) { return std::make_unique<Activation>(config); }

}  // namespace tritonkit
