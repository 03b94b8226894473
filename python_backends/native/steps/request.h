// A request to a step, read and answered with a batch axis first, whether or not the model has one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config.h"
#include "error.h"
#include "tensor.h"

namespace tritonkit {

struct StepInput {
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  Shape shape;  // the batch axis first
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

class StepRequest {
 public:
  StepRequest(TRITONBACKEND_Request* triton, bool batched);

  // Null where there is no such input, or one that lies in GPU memory.
  const StepInput* input(std::string_view name);
  bool is_wanted(std::string_view output) const;
  bool is_cancelled() const;
  // Where to write an output; `shape` has the batch axis. From here on the request is answered here.
  std::byte* output(const char* name, TRITONSERVER_DataType type, Shape shape, size_t bytes);

  // Each gives the request back to Triton.
  void send();
  void refuse(const Error& error);
  TRITONBACKEND_Request* triton() const { return triton_; }
  int64_t batch() const { return batch_; }

 private:
  void respond(TRITONSERVER_Error* failed);

  TRITONBACKEND_Request* triton_;
  TRITONBACKEND_Response* response_ = nullptr;
  bool batched_;
  int64_t batch_ = 1;
  std::map<std::string, StepInput, std::less<>> inputs_;
  std::vector<Buffer> copies_;  // of inputs in several buffers
  std::vector<std::string_view> wanted_;
};

// The elements of a BYTES input, each its length in four bytes, little-endian, and its bytes. False where it is
// none.
bool read_elements(const StepInput& input, std::vector<std::string_view>* elements);

}  // namespace tritonkit
