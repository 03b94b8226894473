#include "step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace tritonkit {
namespace {

// A step, and the parameters of its step.yaml that are known here.
struct Kind {
  std::unique_ptr<Step> (*make)(const Config&);
  std::vector<std::string_view> parameters;
};

const std::map<std::string_view, Kind>& kinds() {
  static const std::map<std::string_view, Kind> kKinds{
      {"activation", {make_activation, {"function", "temperature", "threshold"}}},
      {"decode_image",
       {make_decode_image,
        {"height", "width", "channels", "color", "layout", "resize", "resize_to", "pad_value", "resample", "background",
         "dtype", "scale", "mean", "std", "max_pixels", "max_bytes", "max_decoded_bytes", "max_batch_decoded_bytes",
         "image_size"}}},
      {"labels", {make_labels, {"k", "labels", "function", "threshold"}}},
      {"mean_pool", {make_pool, {"dimension", "normalize"}}},
      {"normalize", {make_normalize, {"dimension", "truncate_to"}}},
      {"pool", {make_pool, {"dimension", "mode", "truncate_to", "normalize"}}},
      {"top_k", {make_top_k, {"k", "labels", "softmax"}}},
  };
  return kKinds;
}

// Names with a dot are tritonkit's, those in capital letters Triton's; neither is a step's.
bool is_of_a_step(const std::string& name) {
  return name.find('.') == std::string::npos &&
         std::any_of(name.begin(), name.end(), [](char letter) { return letter >= 'a' && letter <= 'z'; });
}

}  // namespace

std::unique_ptr<Step> make_step(const Config& config) {
  auto found = kinds().find(config.parameter("tritonkit.step"));
  if (found == kinds().end()) return nullptr;
  const std::vector<std::string_view>& known = found->second.parameters;
  for (const auto& [name, value] : config.json["parameters"].members()) {
    if (is_of_a_step(name) && std::find(known.begin(), known.end(), name) == known.end()) {
      throw Error(text("parameter ", name, " is not known to the step ", found->first, " in C++"));
    }
  }
  return found->second.make(config);
}

int64_t whole_number(const Config& config, const std::string& name, int64_t absent) {
  return config.parameter(name).empty() ? absent : config.whole_number(name);
}

double number(const Config& config, const std::string& name, double absent) {
  const std::string& found = config.parameter(name);
  if (found.empty()) return absent;
  size_t used = 0;
  try {
    const double value = std::stod(found, &used);
    if (used == found.size()) return value;
  } catch (const std::logic_error&) {
  }
  throw Error(text("parameter ", name, ": found '", found, "', wanted a number"));
}

float float_number(const Config& config, const std::string& name, double absent) {
  const double value = number(config, name, absent);
  if (!(std::abs(value) <= double{std::numeric_limits<float>::max()})) {
    throw Error(text("parameter ", name, ": wanted a number that float has"));
  }
  return static_cast<float>(value);
}

}  // namespace tritonkit
