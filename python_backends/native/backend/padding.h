// Requests of different lengths in one batch: the shorter are padded before the run, their outputs cut after it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "config.h"
#include "tensor.h"

namespace tritonkit {

// An axis of a tensor whose size is a request's length; counted with the batch axis.
struct PaddedAxis {
  size_t axis = 0;               // 0 is the batch, so none
  std::vector<std::byte> value;  // of an input: the bytes of one element
  bool is_padded() const { return axis != 0; }
};

// By the tensors' places in the engine. Empty where the model has no parameter `tritonkit.pad`.
struct Padding {
  std::vector<PaddedAxis> inputs, outputs;
  // Most positions of a run: rows times the longest, from the parameter `tritonkit.max_batch_tokens`.
  int64_t most = std::numeric_limits<int64_t>::max();
  bool empty() const { return inputs.empty(); }
};

// Throws Error where the parameter names what is not there or cannot be padded.
Padding read_padding(const Config& config, const std::vector<TensorSpec>& inputs,
                     const std::vector<TensorSpec>& outputs);

// A tensor's elements around one axis: `outer` blocks of `length` pieces of `inner` bytes.
struct Blocks {
  size_t outer = 1, length = 1, inner = 1;
};
Blocks blocks_of(const Shape& shape, size_t axis, size_t element_bytes);

// Copies blocks into longer ones, whose end becomes `value` again and again; gives the place behind them.
std::byte* pad(const std::byte* from, const Blocks& blocks, size_t length, const std::vector<std::byte>& value,
               std::byte* to);
// Copies the beginning of each block; `length` is that of the copies.
void cut(const std::byte* from, const Blocks& blocks, size_t length, std::byte* to);

struct Lengths {
  int64_t length = 0, rows = 1;
};

// Where to split requests, in order of falling length, into runs. A run costs kRunCost positions, and every row in it
// as many as its longest has, so a few that are much longer run apart. A run has at most the given number of positions,
// unless one request alone has more.
class Splitter {
 public:
  static constexpr int64_t kRunCost = 32;
  explicit Splitter(int64_t run_cost = kRunCost) : run_cost_(run_cost) {}
  // Makes room for so many requests; throws where there is no memory.
  void reserve(size_t count);
  // The first request of each run; asks for no memory.
  const std::vector<size_t>& split(const std::vector<Lengths>& falling,
                                   int64_t most = std::numeric_limits<int64_t>::max());

 private:
  int64_t run_cost_;
  std::vector<int64_t> cost_;           // by the number of requests before: the least they cost
  std::vector<size_t> begin_, firsts_;  // where the last of their runs begins
};

}  // namespace tritonkit
