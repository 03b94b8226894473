#include "openvino/choice.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace tritonkit::ov {
namespace {

constexpr double kWorth = 0.95;  // share of the free form's time below which a fixed form is kept: it holds weights too
constexpr int kRounds = 5;
constexpr double kLongest_s = 0.25;  // runs expected to take longer are judged by the next smaller size
constexpr double kBudget_s = 1.0;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double seconds(const Choice::Run& run, int64_t size) {
  Clock::time_point start = Clock::now();
  run(size);
  return seconds_since(start);
}

// As long per item as the largest size before it.
double expected(const Choice::Seconds& known, int64_t size) {
  const auto& [largest, s] = *known.rbegin();
  return s * static_cast<double>(size) / static_cast<double>(largest);
}

}  // namespace

Choice Choice::measure(const std::vector<int64_t>& sizes, const Run& free, const Run& fixed) {
  Seconds free_s, fixed_s;
  for (int64_t size : sizes) {
    if (!free_s.empty() && expected(free_s, size) > kLongest_s) break;
    free(size);   // finds kernels and memory for the shape
    fixed(size);  // compiles the form
    free_s[size] = seconds(free, size);
    fixed_s[size] = seconds(fixed, size);
  }
  Clock::time_point start = Clock::now();
  for (int round = 0; round < kRounds && seconds_since(start) < kBudget_s; ++round) {
    for (auto& [size, s] : free_s) {
      s = std::min(s, seconds(free, size));
      fixed_s[size] = std::min(fixed_s[size], seconds(fixed, size));
    }
  }
  for (int64_t size : sizes) {
    if (free_s.count(size) != 0) continue;
    double free_expected = expected(free_s, size), fixed_expected = expected(fixed_s, size);
    free_s[size] = free_expected;
    fixed_s[size] = fixed_expected;
  }
  for (auto it = fixed_s.begin(); it != fixed_s.end();) {
    it = it->second < kWorth * free_s[it->first] ? std::next(it) : fixed_s.erase(it);
  }
  return {free_s, fixed_s};
}

int64_t Choice::size_for(int64_t count) const {
  auto found = fixed_.lower_bound(count);
  return found == fixed_.end() || found->second > free_seconds(count) ? 0 : found->first;
}

// On the line between the sizes that were tried around it.
double Choice::free_seconds(int64_t count) const {
  auto above = free_.lower_bound(count);
  if (above == free_.end()) --above;
  if (above == free_.begin()) return above->second;
  auto below = std::prev(above);
  double slope = (above->second - below->second) / static_cast<double>(above->first - below->first);
  return below->second + slope * static_cast<double>(count - below->first);
}

std::string Choice::to_text() const {
  std::string gains;
  for (const auto& [size, s] : fixed_) {
    char gain[64];
    std::snprintf(gain, sizeof gain, "%lld (%.1f times as fast)", static_cast<long long>(size), free_.at(size) / s);
    gains += (gains.empty() ? "" : ", ") + std::string(gain);
  }
  return "compiled for batches of " + (gains.empty() ? "any size alone" : gains);
}

}  // namespace tritonkit::ov
