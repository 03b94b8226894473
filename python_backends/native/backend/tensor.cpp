#include "tensor.h"

#include <array>
#include <cstdlib>
#include <new>
#include <utility>

#include "error.h"

namespace tritonkit {
namespace {

struct TypeRow {
  std::string_view name;
  size_t size;
};
// By TRITONSERVER_DataType.
constexpr std::array<TypeRow, 15> kTypes{{
    {"INVALID", 0},
    {"BOOL", 1},
    {"UINT8", 1},
    {"UINT16", 2},
    {"UINT32", 4},
    {"UINT64", 8},
    {"INT8", 1},
    {"INT16", 2},
    {"INT32", 4},
    {"INT64", 8},
    {"FP16", 2},
    {"FP32", 4},
    {"FP64", 8},
    {"BYTES", 0},
    {"BF16", 2},
}};
constexpr size_t kAlignment = 64;

}  // namespace

size_t element_size(TRITONSERVER_DataType type) { return kTypes.at(type).size; }

std::string_view type_name(TRITONSERVER_DataType type) { return kTypes.at(type).name; }

TRITONSERVER_DataType type_named(std::string_view name) {
  if (name.substr(0, 5) == "TYPE_") name.remove_prefix(5);
  if (name == "STRING") name = "BYTES";
  for (size_t type = 1; type < kTypes.size(); ++type) {
    if (kTypes[type].name == name) return static_cast<TRITONSERVER_DataType>(type);
  }
  return TRITONSERVER_TYPE_INVALID;
}

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count))
      throw Error(text("no tensor has the shape ", to_text(shape)));
  }
  return count;
}

size_t bytes_of(TRITONSERVER_DataType type, const Shape& shape) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(element_count(shape), element_size(type), &bytes)) {
    throw Error(text("no tensor has the shape ", to_text(shape)));
  }
  return static_cast<size_t>(bytes);
}

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis != 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

std::string names_of(const std::vector<TensorSpec>& specs) {
  std::string names;
  for (const TensorSpec& spec : specs) names += (names.empty() ? "'" : ", '") + spec.name + "'";
  return "[" + names + "]";
}

// The table of well-formed sequences in the Unicode Standard, 3.9, table 3-7.
bool is_utf8(std::string_view text, size_t* wrong) {
  size_t at = 0;
  auto byte = [&](size_t place) { return place < text.size() ? static_cast<unsigned char>(text[place]) : 0U; };
  while (at < text.size()) {
    unsigned lead = byte(at);
    size_t tail = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    bool good = lead < 0x80 || (lead >= 0xC2 && lead <= 0xF4 && byte(at + 1) >= low && byte(at + 1) <= high);
    for (size_t step = 2; good && step <= tail; ++step) good = (byte(at + step) & 0xC0) == 0x80;
    if (!good) {
      *wrong = at;
      return false;
    }
    at += tail + 1;
  }
  return true;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), capacity_(std::exchange(other.capacity_, 0)) {}

Buffer::~Buffer() { std::free(data_); }

std::byte* Buffer::resize(size_t bytes) {
  if (bytes <= capacity_ && data_ != nullptr) return data_;
  size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  auto* grown = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (grown == nullptr) throw std::bad_alloc();
  std::free(data_);
  data_ = grown;
  capacity_ = rounded;
  return data_;
}

}  // namespace tritonkit
