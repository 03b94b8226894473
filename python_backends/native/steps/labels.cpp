// Scores to labels: what labels_core.py and top_k_core.py compute.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "scores.h"
#include "step.h"

namespace tritonkit {
namespace {

// Scores differ from numpy's in their last bits. Python decides about those as near to the threshold as this.
constexpr float kNear = 1e-5F;

std::string stripped(const std::string& line) {
  const char* blank = " \t\n\r\v\f";
  size_t begin = line.find_first_not_of(blank);
  return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(blank) - begin + 1);
}

// One to a line. The file was checked by Python, which has loaded the model.
std::vector<std::string> read_labels(const Config& config) {
  const std::filesystem::path name = config.parameter("labels");
  if (name.empty() || name.filename() != name) throw Error("parameter labels: wanted a file name");
  std::filesystem::path file = config.version_folder / name;
  if (!std::filesystem::is_regular_file(file)) file = config.version_folder.parent_path() / name;
  std::vector<std::string> labels;
  for (const std::string& line : split_lines(read_file(file))) labels.push_back(stripped(line));
  if (labels.empty()) throw Error(text("parameter labels: ", file.string(), " cannot be read"));
  return labels;
}

class Labels : public Step {
 public:
  Labels(const Config& config, Function function)
      : labels_(read_labels(config)),
        function_(function),
        has_threshold_(number(config, "threshold", 0) != 0),
        threshold_(float_number(config, "threshold", 0)) {
    const int64_t k = whole_number(config, "k", 1);
    if (k < 1 || static_cast<size_t>(k) > labels_.size()) {
      throw Error(text("parameter k: found ", k, ", wanted 1 to ", labels_.size()));
    }
    if (function == Function::kArgmax || function == Function::kThreshold) {
      throw Error(
          text("parameter function: found '", config.parameter("function"), "', wanted softmax, sigmoid or none"));
    }
    k_ = static_cast<size_t>(k);
  }

  bool answer(StepRequest& request) override {
    const StepInput* logits = request.input("logits");
    if (logits == nullptr || !are_logits(*logits)) return false;
    if (logits->shape[1] != static_cast<int64_t>(labels_.size())) return false;
    best_.clear();
    scores_.clear();
    counts_.clear();
    row_.resize(labels_.size());
    const size_t bytes = row_.size() * sizeof(float);
    for (size_t at = 0; at < logits->bytes; at += bytes) {
      std::memcpy(row_.data(), logits->data + at, bytes);
      if (!has_scores(row_, function_) || !rank()) return false;
    }
    return write(request, logits->shape[0]);
  }

 private:
  // Adds the k best of `row_`, ties by lower index. False where Python is to decide about one.
  bool rank() {
    order_.resize(row_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::partial_sort(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(k_), order_.end(),
                      [&](size_t a, size_t b) { return row_[a] > row_[b] || (row_[a] == row_[b] && a < b); });
    score(function_, &row_);
    int32_t count = 0;
    for (size_t place = 0; place < k_; ++place) {
      const float value = row_[order_[place]];
      if (is_near(value)) return false;
      const bool kept = !has_threshold_ || value >= threshold_;
      best_.push_back(kept ? std::string_view(labels_[order_[place]]) : std::string_view());
      scores_.push_back(kept ? value : 0);
      count += kept ? 1 : 0;
    }
    counts_.push_back(count);
    return true;
  }

  bool is_near(float value) const {
    return has_threshold_ && function_ != Function::kNone &&
           std::abs(value - threshold_) <= kNear * std::abs(threshold_);
  }

  bool write(StepRequest& request, int64_t batch) const {
    const Shape shape{batch, static_cast<int64_t>(k_)};
    const bool label = request.is_wanted("label"), score = request.is_wanted("score");
    const bool count = request.is_wanted("count");
    if (label) write_labels(request, shape);
    if (score) write_values(request, "score", TRITONSERVER_TYPE_FP32, shape, scores_);
    if (count) write_values(request, "count", TRITONSERVER_TYPE_INT32, {batch, 1}, counts_);
    return label || score || count;
  }

  void write_labels(StepRequest& request, const Shape& shape) const {
    size_t bytes = 0;
    for (std::string_view label : best_) bytes += sizeof(uint32_t) + label.size();
    std::byte* to = request.output("label", TRITONSERVER_TYPE_BYTES, shape, bytes);
    for (std::string_view label : best_) {
      const auto length = static_cast<uint32_t>(label.size());
      std::memcpy(to, &length, sizeof length);
      if (length != 0) std::memcpy(to + sizeof length, label.data(), length);
      to += sizeof length + length;
    }
  }

  std::vector<std::string> labels_;
  Function function_;
  bool has_threshold_;
  float threshold_;
  size_t k_ = 1;
  std::vector<float> row_, scores_;
  std::vector<size_t> order_;
  std::vector<std::string_view> best_;
  std::vector<int32_t> counts_;
};

}  // namespace

std::unique_ptr<Step> make_labels(const Config& config) {
  return std::make_unique<Labels>(config, function_named(config.parameter("function")));
}

std::unique_ptr<Step> make_top_k(const Config& config) {
  return std::make_unique<Labels>(config, config.is_on("softmax", true) ? Function::kSoftmax : Function::kNone);
}

}  // namespace tritonkit
