// Vectors to one of a text, and to length 1: what pool_core.py, mean_pool_core.py and normalize_core.py compute.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "step.h"

namespace tritonkit {
namespace {

// The floors of sentence-transformers, under the token count and under the length.
constexpr float kFewestTokens = 1e-9F;
constexpr float kShortest = 1e-12F;

enum class Mode { kMean, kCls, kMax, kLast, kWeighted };

Mode mode_named(const std::string& name) {
  static const std::map<std::string, Mode> kModes{{"", Mode::kMean},     {"mean", Mode::kMean},
                                                  {"cls", Mode::kCls},   {"max", Mode::kMax},
                                                  {"last", Mode::kLast}, {"weighted", Mode::kWeighted}};
  auto found = kModes.find(name);
  if (found == kModes.end()) throw Error(text("parameter mode: found '", name, "'"));
  return found->second;
}

bool are_finite(const float* values, size_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

// Vectors as wide as `dimension`, of which the first `width` numbers count.
struct Width {
  explicit Width(const Config& config) : dimension(whole_number(config, "dimension", 0)) {
    const int64_t kept = whole_number(config, "truncate_to", 0);
    if (dimension < 1) throw Error(text("parameter dimension: found ", dimension));
    if (kept < 0 || kept > dimension) throw Error(text("parameter truncate_to: found ", kept));
    width = static_cast<size_t>(kept == 0 ? dimension : kept);
  }

  size_t bytes() const { return static_cast<size_t>(dimension) * sizeof(float); }
  // Triton promises no alignment, so a vector is copied.
  void read(const std::byte* from, float* to) const { std::memcpy(to, from, width * sizeof(float)); }

  int64_t dimension;
  size_t width;
};

class Pool : public Step {
 public:
  explicit Pool(const Config& config)
      : size_(config), mode_(mode_named(config.parameter("mode"))), normalize_(config.is_on("normalize", true)) {}

  bool answer(StepRequest& request) override {
    const StepInput* hidden = request.input("last_hidden_state");
    const StepInput* mask = request.input("attention_mask");
    if (!request.is_wanted("embedding") || hidden == nullptr || mask == nullptr || !fit(*hidden, *mask)) return false;
    const size_t batch = static_cast<size_t>(hidden->shape[0]), tokens = static_cast<size_t>(hidden->shape[1]);
    pooled_.resize(batch * size_.width);
    mask_.resize(tokens);
    vector_.resize(size_.width);
    for (size_t item = 0; item < batch; ++item) {
      const size_t bytes = tokens * sizeof(int64_t);
      std::memcpy(mask_.data(), mask->data + item * bytes, bytes);
      float* out = pooled_.data() + item * size_.width;
      if (!pool(hidden->data + item * tokens * size_.bytes(), out) || !finish(out)) return false;
    }
    const Shape shape{hidden->shape[0], static_cast<int64_t>(size_.width)};
    write_values(request, "embedding", TRITONSERVER_TYPE_FP32, shape, pooled_);
    return true;
  }

 private:
  bool fit(const StepInput& hidden, const StepInput& mask) const {
    return hidden.type == TRITONSERVER_TYPE_FP32 && mask.type == TRITONSERVER_TYPE_INT64 && hidden.shape.size() == 3 &&
           hidden.shape[2] == size_.dimension && mask.shape == Shape{hidden.shape[0], hidden.shape[1]} &&
           hidden.shape[0] > 0 && hidden.shape[1] > 0 && hidden.bytes == bytes_of(hidden.type, hidden.shape) &&
           mask.bytes == bytes_of(mask.type, mask.shape);
  }

  // One text's vectors, weighed by `mask_`. False where Python is to decide.
  bool pool(const std::byte* vectors, float* out) {
    const auto counts = [](int64_t value) { return value != 0; };
    const auto first = std::find_if(mask_.begin(), mask_.end(), counts) - mask_.begin();
    const auto behind = std::find_if(mask_.rbegin(), mask_.rend(), counts).base() - mask_.begin();
    if (mode_ == Mode::kMean || mode_ == Mode::kWeighted) return average(vectors, behind == 0 ? 0 : first, out);
    if (behind == 0) {
      std::fill_n(out, size_.width, 0.0F);
    } else if (mode_ == Mode::kMax) {
      largest(vectors, out);
    } else {
      size_.read(vectors + static_cast<size_t>(mode_ == Mode::kCls ? first : behind - 1) * size_.bytes(), out);
    }
    return true;
  }

  // Sums with weights below 0 may cancel out, so that their last bits would count: they are left to Python.
  bool average(const std::byte* vectors, ptrdiff_t first, float* out) {
    std::fill_n(out, size_.width, 0.0F);
    float count = 0;
    for (size_t token = 0; token < mask_.size(); ++token) {
      if (mask_[token] < 0) return false;
      auto weight = static_cast<float>(mask_[token]);
      if (mode_ == Mode::kWeighted) weight *= static_cast<float>(token + 1) - static_cast<float>(first);
      count += weight;
      size_.read(vectors + token * size_.bytes(), vector_.data());
      for (size_t place = 0; place < size_.width; ++place) out[place] += weight * vector_[place];
    }
    const float divisor = std::max(count, kFewestTokens);
    for (size_t place = 0; place < size_.width; ++place) out[place] /= divisor;
    return true;
  }

  // NaN wherever a token that counts has it.
  void largest(const std::byte* vectors, float* out) {
    std::fill_n(out, size_.width, -std::numeric_limits<float>::infinity());
    for (size_t token = 0; token < mask_.size(); ++token) {
      if (mask_[token] == 0) continue;
      size_.read(vectors + token * size_.bytes(), vector_.data());
      for (size_t place = 0; place < size_.width; ++place) {
        const float value = vector_[place];
        out[place] = value > out[place] || std::isnan(value) ? value : out[place];
      }
    }
  }

  // False where the vector is not finite.
  bool finish(float* out) const {
    if (normalize_) {
      double square = 0;  // float has no squares of numbers beyond 1e19
      for (size_t place = 0; place < size_.width; ++place) square += double{out[place]} * out[place];
      const double length = std::max(std::sqrt(square), double{kShortest});
      for (size_t place = 0; place < size_.width; ++place) out[place] = static_cast<float>(out[place] / length);
    }
    return are_finite(out, size_.width);
  }

  Width size_;
  Mode mode_;
  bool normalize_;
  std::vector<float> pooled_, vector_;
  std::vector<int64_t> mask_;
};

class Normalize : public Step {
 public:
  explicit Normalize(const Config& config) : size_(config) {}

  bool answer(StepRequest& request) override {
    const StepInput* vectors = request.input("embedding");
    if (!request.is_wanted("embedding") || vectors == nullptr || !fit(*vectors)) return false;
    const size_t batch = static_cast<size_t>(vectors->shape[0]);
    scaled_.resize(batch * size_.width);
    for (size_t item = 0; item < batch; ++item) {
      float* out = scaled_.data() + item * size_.width;
      size_.read(vectors->data + item * size_.bytes(), out);
      if (!are_finite(out, size_.width)) return false;
      scale(out);
    }
    const Shape shape{vectors->shape[0], static_cast<int64_t>(size_.width)};
    write_values(request, "embedding", TRITONSERVER_TYPE_FP32, shape, scaled_);
    return true;
  }

 private:
  bool fit(const StepInput& vectors) const {
    return vectors.type == TRITONSERVER_TYPE_FP32 && vectors.shape.size() == 2 && vectors.shape[0] > 0 &&
           vectors.shape[1] == size_.dimension && vectors.bytes == bytes_of(vectors.type, vectors.shape);
  }

  // Divided by the largest first: squares of large numbers would not be finite, and those of small ones zero.
  void scale(float* out) const {
    float largest = 0;
    for (size_t place = 0; place < size_.width; ++place) largest = std::max(largest, std::abs(out[place]));
    if (largest == 0) return;
    double square = 0;
    for (size_t place = 0; place < size_.width; ++place) {
      out[place] /= largest;
      square += double{out[place]} * out[place];
    }
    const auto length = static_cast<float>(std::sqrt(square));
    for (size_t place = 0; place < size_.width; ++place) out[place] /= length;
  }

  Width size_;
  std::vector<float> scaled_;
};

}  // namespace

std::unique_ptr<Step> make_pool(const Config& config) { return std::make_unique<Pool>(config); }
std::unique_ptr<Step> make_normalize(const Config& config) { return std::make_unique<Normalize>(config); }

}  // namespace tritonkit
