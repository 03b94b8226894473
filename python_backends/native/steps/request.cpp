#include "request.h"

#include <algorithm>
#include <cstring>

namespace tritonkit {

StepRequest::StepRequest(TRITONBACKEND_Request* triton, bool batched) : triton_(triton), batched_(batched) {
  uint32_t count = 0;
  check(TRITONBACKEND_RequestInputCount(triton, &count));
  for (uint32_t index = 0; index < count; ++index) {
    TRITONBACKEND_Input* input = nullptr;
    check(TRITONBACKEND_RequestInputByIndex(triton, index, &input));
    const char* name = nullptr;
    const int64_t* shape = nullptr;
    uint32_t rank = 0, buffers = 0;
    uint64_t bytes = 0;
    StepInput found;
    check(TRITONBACKEND_InputProperties(input, &name, &found.type, &shape, &rank, &bytes, &buffers));
    found.shape.assign(shape, shape + rank);
    if (!batched) found.shape.insert(found.shape.begin(), 1);
    if (batched && rank > 0) batch_ = shape[0];
    found.bytes = bytes;
    std::byte* copy = nullptr;
    if (buffers > 1) copy = copies_.emplace_back().resize(bytes);
    size_t at = 0;
    bool here = true;
    for (uint32_t part = 0; part < buffers; ++part) {
      const void* data = nullptr;
      uint64_t size = 0;
      TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
      int64_t device = 0;
      check(TRITONBACKEND_InputBuffer(input, part, &data, &size, &memory, &device));
      here = here && memory != TRITONSERVER_MEMORY_GPU && size <= bytes - at;
      if (!here) break;
      found.data = copy == nullptr ? static_cast<const std::byte*>(data) : copy;
      if (copy != nullptr) std::memcpy(copy + at, data, size);
      at += size;
    }
    if (here && at == bytes) inputs_.emplace(name, std::move(found));
  }
  check(TRITONBACKEND_RequestOutputCount(triton, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char* name = nullptr;
    check(TRITONBACKEND_RequestOutputName(triton, index, &name));
    wanted_.emplace_back(name);
  }
}

const StepInput* StepRequest::input(std::string_view name) {
  auto found = inputs_.find(name);
  return found == inputs_.end() ? nullptr : &found->second;
}

bool StepRequest::is_wanted(std::string_view output) const {
  return std::find(wanted_.begin(), wanted_.end(), output) != wanted_.end();
}

bool StepRequest::is_cancelled() const {
  bool cancelled = false;
  check(TRITONBACKEND_RequestIsCancelled(triton_, &cancelled));
  return cancelled;
}

std::byte* StepRequest::output(const char* name, TRITONSERVER_DataType type, Shape shape, size_t bytes) {
  if (!batched_) shape.erase(shape.begin());
  if (response_ == nullptr) check(TRITONBACKEND_ResponseNew(&response_, triton_));
  TRITONBACKEND_Output* output = nullptr;
  check(
      TRITONBACKEND_ResponseOutput(response_, &output, name, type, shape.data(), static_cast<uint32_t>(shape.size())));
  void* place = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  check(TRITONBACKEND_OutputBuffer(output, &place, bytes, &memory, &device));
  if (memory == TRITONSERVER_MEMORY_GPU) {
    throw Error(text("output '", name, "' is wanted in GPU memory, which this step cannot write"));
  }
  return static_cast<std::byte*>(place);
}

void StepRequest::send() { respond(nullptr); }

void StepRequest::refuse(const Error& error) {
  // What was begun of its answer is thrown away.
  if (response_ != nullptr) log_failure(TRITONBACKEND_ResponseDelete(response_));
  response_ = nullptr;
  TRITONSERVER_Error* failed = error.to_triton();
  respond(failed);
  TRITONSERVER_ErrorDelete(failed);
}

void StepRequest::respond(TRITONSERVER_Error* failed) {
  TRITONSERVER_Error* not_made = response_ == nullptr ? TRITONBACKEND_ResponseNew(&response_, triton_) : nullptr;
  if (not_made == nullptr) {
    log_failure(TRITONBACKEND_ResponseSend(response_, TRITONSERVER_RESPONSE_COMPLETE_FINAL, failed));
  }
  log_failure(not_made);
}

bool read_elements(const StepInput& input, std::vector<std::string_view>* elements) {
  elements->clear();
  size_t at = 0;
  while (at < input.bytes) {
    uint32_t length = 0;
    if (input.bytes - at < sizeof length) return false;
    std::memcpy(&length, input.data + at, sizeof length);
    at += sizeof length;
    if (input.bytes - at < length) return false;
    elements->emplace_back(reinterpret_cast<const char*>(input.data + at), length);
    at += length;
  }
  return input.type == TRITONSERVER_TYPE_BYTES && static_cast<int64_t>(elements->size()) == element_count(input.shape);
}

}  // namespace tritonkit
