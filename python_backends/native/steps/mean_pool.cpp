// Token vectors and their mask to one vector: what mean_pool_core.py computes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "step.h"

namespace tritonkit {
namespace {

// The floors of sentence-transformers, under the token count and under the length.
constexpr float kFewestTokens = 1e-9F;
constexpr float kShortest = 1e-12F;

class MeanPool : public Step {
 public:
  explicit MeanPool(const Config& config)
      : dimension_(config.whole_number("dimension")), normalize_(config.is_on("normalize", true)) {}

  bool answer(StepRequest& request) override {
    const StepInput* hidden = request.input("last_hidden_state");
    const StepInput* mask = request.input("attention_mask");
    if (!request.is_wanted("embedding") || hidden == nullptr || mask == nullptr || !fit(*hidden, *mask)) return false;
    const size_t batch = static_cast<size_t>(hidden->shape[0]), tokens = static_cast<size_t>(hidden->shape[1]);
    pooled_.resize(batch * width());
    for (size_t item = 0; item < batch; ++item) {
      const std::byte* vectors = hidden->data + item * tokens * width() * sizeof(float);
      const std::byte* weights = mask->data + item * tokens * sizeof(int64_t);
      if (!pool(vectors, weights, tokens, pooled_.data() + item * width())) return false;
    }
    size_t bytes = pooled_.size() * sizeof(float);
    std::memcpy(request.output("embedding", TRITONSERVER_TYPE_FP32, {hidden->shape[0], dimension_}, bytes),
                pooled_.data(), bytes);
    return true;
  }

 private:
  size_t width() const { return static_cast<size_t>(dimension_); }

  bool fit(const StepInput& hidden, const StepInput& mask) const {
    return hidden.type == TRITONSERVER_TYPE_FP32 && mask.type == TRITONSERVER_TYPE_INT64 && hidden.shape.size() == 3 &&
           hidden.shape[2] == dimension_ && mask.shape == Shape{hidden.shape[0], hidden.shape[1]} &&
           hidden.shape[0] > 0 && hidden.shape[1] > 0 && hidden.bytes == bytes_of(hidden.type, hidden.shape) &&
           mask.bytes == bytes_of(mask.type, mask.shape);
  }

  // False where the mean is not finite.
  bool pool(const std::byte* vectors, const std::byte* weights, size_t tokens, float* out) {
    std::fill_n(out, width(), 0.0F);
    vector_.resize(width());
    float count = 0;
    for (size_t token = 0; token < tokens; ++token) {
      int64_t counts = 0;
      std::memcpy(&counts, weights + token * sizeof counts, sizeof counts);
      const auto weight = static_cast<float>(counts);
      count += weight;
      // Triton promises no alignment.
      std::memcpy(vector_.data(), vectors + token * width() * sizeof(float), width() * sizeof(float));
      for (size_t place = 0; place < width(); ++place) out[place] += weight * vector_[place];
    }
    const float divisor = std::max(count, kFewestTokens);
    double square = 0;  // float has no squares of numbers beyond 1e19
    for (size_t place = 0; place < width(); ++place) {
      out[place] /= divisor;
      square += double{out[place]} * out[place];
    }
    const double length = normalize_ ? std::max(std::sqrt(square), double{kShortest}) : 1.0;
    for (size_t place = 0; place < width(); ++place) out[place] = static_cast<float>(out[place] / length);
    return std::all_of(out, out + width(), [](float value) { return std::isfinite(value); });
  }

  int64_t dimension_;
  bool normalize_;
  std::vector<float> pooled_, vector_;
};

}  // namespace

std::unique_ptr<Step> make_mean_pool(const Config& config) { return std::make_unique<MeanPool>(config); }

}  // namespace tritonkit
