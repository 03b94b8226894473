// A Triton backend that computes nothing: each request gets zeros of the output's shape. What it serves shows
// what Triton itself costs. The model's only output is CEILING_OUTPUT, FP32 [batch, CEILING_WIDTH].
#include <chrono>
#include <cstring>

#include "triton.h"

namespace {

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

TRITONSERVER_Error* fill(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, uint64_t* batch) {
  TRITONBACKEND_Input* input = nullptr;
  const int64_t* shape = nullptr;
  TRITONSERVER_Error* failed = TRITONBACKEND_RequestInputByIndex(request, 0, &input);
  if (failed == nullptr) {
    failed = TRITONBACKEND_InputProperties(input, nullptr, nullptr, &shape, nullptr, nullptr, nullptr);
  }
  if (failed != nullptr) return failed;
  *batch = static_cast<uint64_t>(shape[0]);
  const int64_t given[] = {shape[0], CEILING_WIDTH};
  TRITONBACKEND_Output* output = nullptr;
  failed = TRITONBACKEND_ResponseOutput(response, &output, CEILING_OUTPUT, TRITONSERVER_TYPE_FP32, given, 2);
  if (failed != nullptr) return failed;
  void* buffer = nullptr;
  const uint64_t bytes = *batch * CEILING_WIDTH * sizeof(float);
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  failed = TRITONBACKEND_OutputBuffer(output, &buffer, bytes, &memory, &device);
  if (failed == nullptr) std::memset(buffer, 0, bytes);
  return failed;
}

void drop(TRITONSERVER_Error* failed) {
  if (failed != nullptr) TRITONSERVER_ErrorDelete(failed);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t count) {
  const uint64_t begin = now_ns();
  uint64_t items = 0;
  for (uint32_t each = 0; each < count; ++each) {
    TRITONBACKEND_Response* response = nullptr;
    TRITONSERVER_Error* failed = TRITONBACKEND_ResponseNew(&response, requests[each]);
    uint64_t batch = 1;
    if (failed == nullptr) failed = fill(requests[each], response, &batch);
    items += batch;
    const bool answered = failed == nullptr;
    if (response != nullptr) drop(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, failed));
    drop(failed);
    const uint64_t end = now_ns();
    drop(TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[each], answered, begin, begin, end, end));
    drop(TRITONBACKEND_RequestRelease(requests[each], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  const uint64_t end = now_ns();
  drop(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, items, begin, begin, end, end));
  return nullptr;
}

}  // extern "C"
