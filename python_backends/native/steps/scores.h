// What the steps after a classifier share: step_scores.py in C++.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "request.h"

namespace tritonkit {

enum class Function { kSoftmax, kSigmoid, kNone, kArgmax, kThreshold };

// Throws Error for another name.
Function function_named(const std::string& name);

// FP32 [batch, classes] with at least one of each.
bool are_logits(const StepInput& input);
// Whether a row has scores: no NaN, and with softmax a finite maximum.
bool has_scores(const std::vector<float>& logits, Function function);
// The scores of softmax, sigmoid or none, in place of a row that has some.
void score(Function function, std::vector<float>* logits);

}  // namespace tritonkit
