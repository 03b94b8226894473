#include "padding.h"

#include <locale.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace tritonkit {
namespace {

constexpr const char* kParameter = "tritonkit.pad";
constexpr const char* kMost = "tritonkit.max_batch_tokens";
constexpr size_t kMostAxes = 64;

template <typename Number>
std::vector<std::byte> element_of(Number number) {
  std::vector<std::byte> bytes(sizeof number);
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

// The bytes of a whole number that the type holds; none where it does not: nothing is rounded or wraps around.
template <typename Number>
std::vector<std::byte> whole(const std::string& found) {
  Number number{};
  const auto [end, failed] = std::from_chars(found.data(), found.data() + found.size(), number);
  if (failed != std::errc() || end != found.data() + found.size() || found.empty()) return {};
  return element_of(number);
}

// The same of a decimal number, whatever the process's locale is.
template <typename Number>
std::vector<std::byte> real(const std::string& found) {
  static const locale_t kPlain = newlocale(LC_ALL_MASK, "C", nullptr);
  if (found.empty() || found.find_first_not_of(" +-.0123456789eE") != std::string::npos) return {};
  char* end = nullptr;
  Number number{};
  if constexpr (std::is_same_v<Number, float>) {
    number = strtof_l(found.c_str(), &end, kPlain);
  } else {
    number = strtod_l(found.c_str(), &end, kPlain);
  }
  if (end != found.c_str() + found.size() || !std::isfinite(number)) return {};
  return element_of(number);
}

std::vector<std::byte> bytes_of_value(TRITONSERVER_DataType type, const std::string& found) {
  switch (type) {
    case TRITONSERVER_TYPE_FP32:
      return real<float>(found);
    case TRITONSERVER_TYPE_FP64:
      return real<double>(found);
    case TRITONSERVER_TYPE_INT64:
      return whole<int64_t>(found);
    case TRITONSERVER_TYPE_INT32:
      return whole<int32_t>(found);
    case TRITONSERVER_TYPE_INT16:
      return whole<int16_t>(found);
    case TRITONSERVER_TYPE_INT8:
      return whole<int8_t>(found);
    case TRITONSERVER_TYPE_UINT64:
      return whole<uint64_t>(found);
    case TRITONSERVER_TYPE_UINT32:
      return whole<uint32_t>(found);
    case TRITONSERVER_TYPE_UINT16:
      return whole<uint16_t>(found);
    case TRITONSERVER_TYPE_UINT8:
      return whole<uint8_t>(found);
    case TRITONSERVER_TYPE_BOOL:
      return found == "0" || found == "1" ? whole<uint8_t>(found) : std::vector<std::byte>();
    default:
      return {};
  }
}

std::string wanted_of(TRITONSERVER_DataType type) {
  if (type == TRITONSERVER_TYPE_FP32 || type == TRITONSERVER_TYPE_FP64) return "a number";
  if (type == TRITONSERVER_TYPE_BOOL) return "0 or 1";
  return text("a whole number of ", type_name(type));
}

bool can_be_padded(TRITONSERVER_DataType type, bool is_input) {
  const bool half = type == TRITONSERVER_TYPE_FP16 || type == TRITONSERVER_TYPE_BF16;
  return element_size(type) != 0 && !(is_input && half);
}

// As the network counts it, with the batch; 0 where it is no axis after that.
size_t axis_of(const std::string& found) {
  size_t axis = 0;
  const auto [end, failed] = std::from_chars(found.data(), found.data() + found.size(), axis);
  return failed == std::errc() && end == found.data() + found.size() && axis < kMostAxes ? axis + 1 : 0;
}

Json parsed(const std::string& asked) {
  try {
    return Json::parse(asked);
  } catch (const Error&) {
    throw Error(text("parameter ", kParameter, ": found ", asked, ", wanted an object of objects"));
  }
}

std::vector<PaddedAxis> axes(const Json& asked, const std::vector<TensorSpec>& specs, bool with_value, size_t* used) {
  std::vector<PaddedAxis> found(specs.size());
  for (size_t place = 0; place < specs.size(); ++place) {
    const TensorSpec& spec = specs[place];
    auto member = asked.members().find(spec.name);
    if (member == asked.members().end()) continue;
    const std::string where = text("parameter ", kParameter, ", '", spec.name, "': ");
    const size_t axis = axis_of(member->second["axis"].text());
    if (axis == 0 || axis >= spec.dims.size() || spec.dims[axis] != -1) {
      throw Error(text(where, "found axis ", member->second["axis"].text(), ", wanted one of free size in ",
                       to_text(spec.dims), " after its first"));
    }
    found[place].axis = axis;
    if (!can_be_padded(spec.type, with_value))
      throw Error(text(where, "of type ", type_name(spec.type), " cannot be padded"));
    if (with_value) {
      const std::string& value = member->second["value"].text();
      found[place].value = bytes_of_value(spec.type, value);
      if (found[place].value.empty())
        throw Error(text(where, "found value ", value, ", wanted ", wanted_of(spec.type)));
    }
    ++*used;
  }
  return found;
}

// The most positions of a run; without the parameter as many as come.
int64_t read_most(const Config& config) {
  const std::string& asked = config.parameter(kMost);
  if (asked.empty()) return std::numeric_limits<int64_t>::max();
  if (config.parameter(kParameter).empty()) {
    throw Error(text("parameter ", kMost, " found; wanted it with ", kParameter, ", which pads requests"));
  }
  int64_t most = 0;
  const auto [end, failed] = std::from_chars(asked.data(), asked.data() + asked.size(), most);
  if (failed != std::errc() || end != asked.data() + asked.size() || most < 1) {
    throw Error(text("parameter ", kMost, ": found ", asked, ", wanted a whole number above 0"));
  }
  return most;
}

}  // namespace

Padding read_padding(const Config& config, const std::vector<TensorSpec>& inputs,
                     const std::vector<TensorSpec>& outputs) {
  const int64_t most = read_most(config);
  const std::string& asked = config.parameter(kParameter);
  if (asked.empty()) return {};
  if (!config.batched()) throw Error(text("parameter ", kParameter, " found; wanted max_batch_size above 0"));
  if (!config.states.empty()) throw Error(text("parameter ", kParameter, " found; states cannot be padded"));
  const Json json = parsed(asked);
  size_t used = 0;
  Padding padding{axes(json, inputs, true, &used), axes(json, outputs, false, &used), most};
  if (used != json.members().size() || used == 0) {
    throw Error(text("parameter ", kParameter, ": found ", asked, ", wanted tensors of the model, which has ",
                     names_of(inputs), " and ", names_of(outputs)));
  }
  for (const Json& entry : config.json["input"].items()) {
    if (entry["allow_ragged_batch"].is_true() && json.members().count(entry["name"].text()) == 0) {
      throw Error(text("input '", entry["name"].text(), "': allow_ragged_batch found; wanted it in parameter ",
                       kParameter, " too"));
    }
  }
  return padding;
}

Blocks blocks_of(const Shape& shape, size_t axis, size_t element_bytes) {
  Blocks blocks;
  for (size_t place = 0; place < axis; ++place) blocks.outer *= static_cast<size_t>(shape[place]);
  blocks.length = static_cast<size_t>(shape[axis]);
  blocks.inner = element_bytes;
  for (size_t place = axis + 1; place < shape.size(); ++place) blocks.inner *= static_cast<size_t>(shape[place]);
  return blocks;
}

std::byte* pad(const std::byte* from, const Blocks& blocks, size_t length, const std::vector<std::byte>& value,
               std::byte* to) {
  const size_t bytes = blocks.length * blocks.inner;
  const size_t missing = (length - blocks.length) * blocks.inner / value.size();
  for (size_t block = 0; block < blocks.outer; ++block, from += bytes) {
    to = std::copy_n(from, bytes, to);
    for (size_t place = 0; place < missing; ++place) to = std::copy(value.begin(), value.end(), to);
  }
  return to;
}

void cut(const std::byte* from, const Blocks& blocks, size_t length, std::byte* to) {
  for (size_t block = 0; block < blocks.outer; ++block, from += blocks.length * blocks.inner) {
    to = std::copy_n(from, length * blocks.inner, to);
  }
}

void Splitter::reserve(size_t count) {
  cost_.reserve(count + 1);
  begin_.reserve(count + 1);
  firsts_.reserve(count);
}

const std::vector<size_t>& Splitter::split(const std::vector<Lengths>& falling, int64_t most) {
  const size_t count = falling.size();
  cost_.assign(count + 1, std::numeric_limits<int64_t>::max());
  begin_.assign(count + 1, 0);
  cost_[0] = 0;
  for (size_t first = 0; first < count; ++first) {
    int64_t rows = 0;
    for (size_t end = first + 1; end <= count; ++end) {
      rows += falling[end - 1].rows;
      if (end > first + 1 && rows * falling[first].length > most) break;
      const int64_t together = cost_[first] + run_cost_ + rows * falling[first].length;
      if (together >= cost_[end]) continue;
      cost_[end] = together;
      begin_[end] = first;
    }
  }
  firsts_.clear();
  for (size_t end = count; end > 0; end = begin_[end]) firsts_.push_back(begin_[end]);
  std::reverse(firsts_.begin(), firsts_.end());
  return firsts_;
}

}  // namespace tritonkit
