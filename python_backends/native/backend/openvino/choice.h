// Which batches go through a network compiled for one size, by what that is worth here.
//
// Measured when a model loads, in about a second, on zeros: the network of any size and those of one size run the
// same batches in turn, so that the former pays for its changes of shape as it would when serving.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tritonkit::ov {

class Choice {
 public:
  using Seconds = std::map<int64_t, double>;
  using Run = std::function<void(int64_t size)>;

  Choice() = default;
  Choice(Seconds free, Seconds fixed) : free_(std::move(free)), fixed_(std::move(fixed)) {}
  // `free` and `fixed` run a batch of a size.
  static Choice measure(const std::vector<int64_t>& sizes, const Run& free, const Run& fixed);

  // The compiled size to pad a batch of `count` to; 0: it goes through the form of any size.
  int64_t size_for(int64_t count) const;
  bool has(int64_t size) const { return fixed_.count(size) != 0; }
  std::string to_text() const;

 private:
  double free_seconds(int64_t count) const;

  Seconds free_;   // every size that was tried
  Seconds fixed_;  // those whose form is kept
};

}  // namespace tritonkit::ov
