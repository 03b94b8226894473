// What a configuration asks of ONNX Runtime.
//
// Source of the parameters: `src/onnxruntime.cc` (ModelState) of triton-inference-server/onnxruntime_backend.
#pragma once

#include "config.h"
#include "onnxruntime/api.h"

namespace tritonkit {

constexpr const char *kIntraOp = "intra_op_thread_count", *kInterOp = "inter_op_thread_count";

int threads_asked(const Config& config, const std::string& key);
// ONNX Runtime's own default, 0, is one thread for each core, and knows nothing of a quota.
int threads_or_quota(int asked);
// Says in the log where the instances have more threads than there are cores.
void check_threads(const Config& config);
ort::OptionsPtr session_options(const Config& config, int threads);
// Null where the configuration asks for nothing.
ort::RunOptionsPtr run_options(const Config& config);
// Throws Error where there is none.
std::filesystem::path model_file(const Config& config);

}  // namespace tritonkit
