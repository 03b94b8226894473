#include "padding.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace tritonkit {
namespace {

constexpr const char* kParameter = "tritonkit.pad";

template <typename Number>
std::vector<std::byte> bytes_of_number(Number number) {
  std::vector<std::byte> bytes(sizeof number);
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::vector<std::byte> element(TRITONSERVER_DataType type, const std::string& where, const std::string& found) {
  try {
    switch (type) {
      case TRITONSERVER_TYPE_FP32:
        return bytes_of_number(std::stof(found));
      case TRITONSERVER_TYPE_FP64:
        return bytes_of_number(std::stod(found));
      case TRITONSERVER_TYPE_INT64:
        return bytes_of_number<int64_t>(std::stoll(found));
      case TRITONSERVER_TYPE_INT32:
        return bytes_of_number(static_cast<int32_t>(std::stol(found)));
      case TRITONSERVER_TYPE_INT8:
        return bytes_of_number(static_cast<int8_t>(std::stol(found)));
      case TRITONSERVER_TYPE_UINT8:
      case TRITONSERVER_TYPE_BOOL:
        return bytes_of_number(static_cast<uint8_t>(std::stoul(found)));
      default:
        break;
    }
  } catch (const std::logic_error&) {
    throw Error(text(where, "found value '", found, "', wanted a number"));
  }
  throw Error(text(where, "of type ", type_name(type), " cannot be padded"));
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
    const int64_t axis = member->second["axis"].integer(-1) + 1;  // in the configuration without the batch
    if (axis < 1 || axis >= static_cast<int64_t>(spec.dims.size()) || spec.dims[static_cast<size_t>(axis)] != -1) {
      throw Error(text(where, "found axis ", member->second["axis"].text(), ", wanted one of free size in ",
                       to_text(spec.dims), " after its first"));
    }
    found[place].axis = static_cast<size_t>(axis);
    if (with_value) found[place].value = element(spec.type, where, member->second["value"].text());
    if (element_size(spec.type) == 0) throw Error(text(where, "of type ", type_name(spec.type), " cannot be cut"));
    ++*used;
  }
  return found;
}

}  // namespace

Padding read_padding(const Config& config, const std::vector<TensorSpec>& inputs,
                     const std::vector<TensorSpec>& outputs) {
  const std::string& asked = config.parameter(kParameter);
  if (asked.empty()) return {};
  if (!config.batched()) throw Error(text("parameter ", kParameter, " found; wanted max_batch_size above 0"));
  if (!config.states.empty()) throw Error(text("parameter ", kParameter, " found; states cannot be padded"));
  const Json json = parsed(asked);
  size_t used = 0;
  Padding padding{axes(json, inputs, true, &used), axes(json, outputs, false, &used)};
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

const std::vector<size_t>& Splitter::split(const std::vector<Lengths>& falling) {
  const size_t count = falling.size();
  cost_.assign(count + 1, std::numeric_limits<int64_t>::max());
  begin_.assign(count + 1, 0);
  cost_[0] = 0;
  for (size_t first = 0; first < count; ++first) {
    int64_t rows = 0;
    for (size_t end = first + 1; end <= count; ++end) {
      rows += falling[end - 1].rows;
      const int64_t together = cost_[first] + kRunCost + rows * falling[first].length;
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
