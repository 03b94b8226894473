// Tensors as engines and Triton both see them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "triton.h"

namespace tritonkit {

using Shape = std::vector<int64_t>;

struct TensorSpec {
  std::string name;
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  Shape dims;  // the batch axis included; -1 is any size
};

// Bytes of one element; 0 of strings.
size_t element_size(TRITONSERVER_DataType type);
std::string_view type_name(TRITONSERVER_DataType type);
// From the name in a configuration, with or without TYPE_; TYPE_STRING are bytes.
TRITONSERVER_DataType type_named(std::string_view name);
// Both throw Error where a size is negative or the product is more than memory can have.
int64_t element_count(const Shape& shape);
size_t bytes_of(TRITONSERVER_DataType type, const Shape& shape);
// As in "[2, -1, 3]".
std::string to_text(const Shape& shape);
// As in "['x', 'y']".
std::string names_of(const std::vector<TensorSpec>& specs);
bool is_utf8(std::string_view text, size_t* wrong);

// Memory that is kept between runs, aligned for vector instructions. What it held is lost when it grows.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept;
  ~Buffer();
  std::byte* resize(size_t bytes);
  std::byte* data() { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace tritonkit
