#include "scores.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tritonkit {
namespace {

// The largest logit is finite. Differences are rounded to float as numpy's are, so that small probabilities agree.
void softmax(std::vector<float>* logits) {
  const float highest = *std::max_element(logits->begin(), logits->end());
  double total = 0;
  for (float& value : *logits) {
    value = std::exp(value - highest);
    total += value;
  }
  for (float& value : *logits) value = static_cast<float>(value / total);
}

// exp(-log(1 + exp(-logit))), as numpy's logaddexp has it.
float sigmoid(float logit) {
  const float sum = logit > 0 ? std::log1p(std::exp(-logit)) : -logit + std::log1p(std::exp(logit));
  return std::exp(-sum);
}

}  // namespace

Function function_named(const std::string& name) {
  static const std::map<std::string, Function> kFunctions{
      {"", Function::kSoftmax},  {"softmax", Function::kSoftmax}, {"sigmoid", Function::kSigmoid},
      {"none", Function::kNone}, {"argmax", Function::kArgmax},   {"threshold", Function::kThreshold}};
  auto found = kFunctions.find(name);
  if (found == kFunctions.end()) throw Error(text("parameter function: found '", name, "'"));
  return found->second;
}

bool are_logits(const StepInput& input) {
  return input.type == TRITONSERVER_TYPE_FP32 && input.shape.size() == 2 && input.shape[0] > 0 && input.shape[1] > 0 &&
         input.bytes == bytes_of(input.type, input.shape);
}

bool has_scores(const std::vector<float>& logits, Function function) {
  if (std::any_of(logits.begin(), logits.end(), [](float value) { return std::isnan(value); })) return false;
  return function != Function::kSoftmax || std::isfinite(*std::max_element(logits.begin(), logits.end()));
}

void score(Function function, std::vector<float>* logits) {
  if (function == Function::kSoftmax) softmax(logits);
  if (function == Function::kSigmoid) std::transform(logits->begin(), logits->end(), logits->begin(), sigmoid);
}

}  // namespace tritonkit
