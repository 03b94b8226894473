// Scores to the k best labels: what top_k_core.py computes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <numeric>

#include "step.h"

namespace tritonkit {
namespace {

std::string stripped(const std::string& line) {
  const char* blank = " \t\n\r\v\f";
  size_t begin = line.find_first_not_of(blank);
  return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(blank) - begin + 1);
}

// One to a line. The file was checked by Python, which has loaded the model.
std::vector<std::string> read_labels(const Config& config) {
  const std::string& name = config.parameter("labels");
  std::filesystem::path file = config.version_folder / name;
  if (!std::filesystem::is_regular_file(file)) file = config.version_folder.parent_path() / name;
  std::vector<std::string> labels;
  for (const std::string& line : split_lines(read_file(file))) labels.push_back(stripped(line));
  if (labels.empty()) throw Error(text("parameter labels: ", file.string(), " cannot be read"));
  return labels;
}

class TopK : public Step {
 public:
  explicit TopK(const Config& config) : labels_(read_labels(config)), softmax_(config.is_on("softmax", true)) {
    const int64_t k = config.parameter("k").empty() ? 1 : config.whole_number("k");
    if (k < 1 || static_cast<size_t>(k) > labels_.size()) throw Error(text("parameter k: found ", k));
    k_ = static_cast<size_t>(k);
  }

  bool answer(StepRequest& request) override {
    const StepInput* logits = request.input("logits");
    if (logits == nullptr || !fit(*logits)) return false;
    const auto batch = static_cast<size_t>(logits->shape[0]);
    best_.clear();
    scores_.clear();
    row_.resize(labels_.size());
    for (size_t item = 0; item < batch; ++item) {
      std::memcpy(row_.data(), logits->data + item * row_.size() * sizeof(float), row_.size() * sizeof(float));
      if (!rank()) return false;
    }
    const Shape shape{logits->shape[0], static_cast<int64_t>(k_)};
    if (request.is_wanted("label")) write_labels(request, shape);
    if (request.is_wanted("score")) {
      size_t bytes = scores_.size() * sizeof(float);
      std::memcpy(request.output("score", TRITONSERVER_TYPE_FP32, shape, bytes), scores_.data(), bytes);
    }
    return request.is_wanted("label") || request.is_wanted("score");
  }

 private:
  bool fit(const StepInput& logits) const {
    return logits.type == TRITONSERVER_TYPE_FP32 && logits.shape.size() == 2 && logits.shape[0] > 0 &&
           logits.shape[1] == static_cast<int64_t>(labels_.size()) &&
           logits.bytes == bytes_of(logits.type, logits.shape);
  }

  // Adds the k best of `row_`, ties by lower index. False where one is NaN or, with softmax, the best is not finite.
  bool rank() {
    if (std::any_of(row_.begin(), row_.end(), [](float value) { return std::isnan(value); })) return false;
    order_.resize(row_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::partial_sort(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(k_), order_.end(),
                      [&](size_t a, size_t b) { return row_[a] > row_[b] || (row_[a] == row_[b] && a < b); });
    const float highest = row_[order_[0]];
    if (softmax_ && !std::isfinite(highest)) return false;
    double total = 0;
    for (float value : row_) total += softmax_ ? std::exp(static_cast<double>(value) - highest) : 0;
    for (size_t place = 0; place < k_; ++place) {
      best_.push_back(order_[place]);
      const float value = row_[order_[place]];
      scores_.push_back(softmax_ ? static_cast<float>(std::exp(static_cast<double>(value) - highest) / total) : value);
    }
    return true;
  }

  void write_labels(StepRequest& request, const Shape& shape) const {
    size_t bytes = 0;
    for (size_t label : best_) bytes += sizeof(uint32_t) + labels_[label].size();
    std::byte* to = request.output("label", TRITONSERVER_TYPE_BYTES, shape, bytes);
    for (size_t label : best_) {
      const auto length = static_cast<uint32_t>(labels_[label].size());
      std::memcpy(to, &length, sizeof length);
      std::memcpy(to + sizeof length, labels_[label].data(), length);
      to += sizeof length + length;
    }
  }

  std::vector<std::string> labels_;
  bool softmax_;
  size_t k_ = 1;
  std::vector<float> row_, scores_;
  std::vector<size_t> order_, best_;
};

}  // namespace

std::unique_ptr<Step> make_top_k(const Config& config) { return std::make_unique<TopK>(config); }

}  // namespace tritonkit
