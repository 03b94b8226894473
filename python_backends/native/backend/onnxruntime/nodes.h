// The nodes of an ONNX file.
#pragma once

#include <string>
#include <string_view>

namespace tritonkit {

// Those of the main graph that read a tensor, as in "Reshape (name), Slice (other)". Empty where none does, or where
// the file is damaged.
std::string readers_of(std::string_view file, const std::string& tensor);

}  // namespace tritonkit
