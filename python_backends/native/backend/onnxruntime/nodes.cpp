// Source of the numbers: onnx.proto of onnx/onnx; protobuf's encoding is documented at protobuf.dev.
#include "onnxruntime/nodes.h"

#include <cstdint>
#include <functional>

#include "error.h"

namespace tritonkit {
namespace {

using UseField = std::function<void(uint64_t number, std::string_view content)>;

bool take_number(std::string_view& from, uint64_t& number) {
  number = 0;
  for (unsigned shift = 0; shift < 64 && !from.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(from.front());
    from.remove_prefix(1);
    number |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Texts and messages within a message, whose other fields are passed over.
void for_each_field(std::string_view message, const UseField& use) {
  enum { kNumber = 0, kEightBytes = 1, kContent = 2, kFourBytes = 5 };
  uint64_t key = 0, size = 0;
  while (take_number(message, key)) {
    const uint64_t kind = key & 7U;
    if (kind == kNumber || kind == kContent) {
      if (!take_number(message, size)) return;
      if (kind == kNumber) continue;
    } else if (kind == kEightBytes || kind == kFourBytes) {
      size = kind == kEightBytes ? 8 : 4;
    } else {
      return;
    }
    if (size > message.size()) return;
    if (kind == kContent) use(key >> 3U, message.substr(0, size));
    message.remove_prefix(size);
  }
}

// "Reshape (name)", or nothing where it does not read the tensor.
std::string reader(std::string_view node, const std::string& tensor) {
  enum { kInput = 1, kName = 3, kOperator = 4 };
  std::string_view name, type;
  bool reads = false;
  for_each_field(node, [&](uint64_t number, std::string_view content) {
    reads = reads || (number == kInput && content == tensor);
    if (number == kName) name = content;
    if (number == kOperator) type = content;
  });
  return reads ? text(type, " (", name, ")") : "";
}

}  // namespace

std::string readers_of(std::string_view file, const std::string& tensor) {
  constexpr uint64_t kGraph = 7, kNode = 1;
  std::string readers;
  for_each_field(file, [&](uint64_t number, std::string_view graph) {
    if (number != kGraph) return;
    for_each_field(graph, [&](uint64_t part, std::string_view node) {
      const std::string found = part == kNode ? reader(node, tensor) : "";
      if (!found.empty()) readers += text(readers.empty() ? "" : ", ", found);
    });
  });
  return readers;
}

}  // namespace tritonkit
