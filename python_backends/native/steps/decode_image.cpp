// Plain PNG images to the pixels a network takes: what decode_image_core.py computes, to the bit.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "image.h"
#include "step.h"

namespace tritonkit {
namespace {

// Larger ones are decoded in a process of their own, whose memory is not the server's.
constexpr size_t kMostBytes = size_t{16} << 20;

size_t whole(const Config& config, const std::string& name, int64_t absent) {
  return static_cast<size_t>(whole_number(config, name, absent));
}

// "0.5,0.4,0.3": one value for each channel, or one for all.
std::array<float, 3> numbers(const Config& config, const std::string& name, float absent) {
  std::array<float, 3> values{absent, absent, absent};
  const std::string& found = config.parameter(name);
  if (found.empty()) return values;
  size_t at = 0;
  for (size_t place = 0; place < values.size(); ++place) {
    size_t end = std::min(found.find(',', at), found.size());
    values[place] = at < found.size() ? static_cast<float>(std::stod(found.substr(at, end - at))) : values[0];
    at = end + 1;
  }
  return values;
}

enum class Resize { kStretch, kCrop, kLetterbox, kShortest, kUnknown };

Resize resize_named(const std::string& name) {
  if (name.empty() || name == "stretch") return Resize::kStretch;
  if (name == "crop") return Resize::kCrop;
  if (name == "letterbox") return Resize::kLetterbox;
  return name == "shortest" ? Resize::kShortest : Resize::kUnknown;
}

// The part `box` of the source, resized to `width` and `height`, lies at `left` and `top` in the network's image.
struct Placement {
  Box box;
  size_t width, height, left, top;
};

class DecodeImage : public Step {
 public:
  explicit DecodeImage(const Config& config)
      : height_(whole(config, "height", 224)),
        width_(whole(config, "width", 224)),
        channels_(whole(config, "channels", 3)),
        resize_to_(whole(config, "resize_to", 256)),
        resize_(resize_named(config.parameter("resize"))),
        pad_(static_cast<uint8_t>(whole(config, "pad_value", 114))),
        filter_(filter_named(config.parameter("resample").empty() ? "bilinear" : config.parameter("resample"))),
        background_(config.parameter("background") == "black" ? uint8_t{0} : uint8_t{255}),
        bytes_(config.parameter("dtype") == "UINT8"),
        reversed_(config.parameter("color") == "BGR"),
        channels_last_(config.parameter("layout") == "NHWC"),
        gives_size_(config.is_on("image_size", false)),
        scale_(static_cast<float>(number(config, "scale", 1.0 / 255))),
        mean_(numbers(config, "mean", 0)),
        std_(numbers(config, "std", 1)),
        most_pixels_(whole(config, "max_pixels", 64'000'000)),
        most_file_(whole(config, "max_bytes", 32 << 20)),
        most_decoded_(whole(config, "max_decoded_bytes", 192 << 20)),
        most_batch_(whole(config, "max_batch_decoded_bytes", int64_t{2048} << 20)) {}

  bool answer(StepRequest& request) override {
    const StepInput* input = request.input("image");
    if (filter_ == nullptr || resize_ == Resize::kUnknown) return false;
    if (input == nullptr || input->shape.size() != 2 || input->shape[1] != 1) return false;
    if (!request.is_wanted("pixels") || !read_elements(*input, &files_)) return false;
    decoded_ = 0;
    images_.clear();
    sizes_.clear();
    for (std::string_view file : files_) {
      images_.emplace_back();
      if (!decode(file, &images_.back())) return false;
    }
    const auto height = static_cast<int64_t>(height_), width = static_cast<int64_t>(width_);
    const auto channels = static_cast<int64_t>(channels_);
    const int64_t batch = input->shape[0];
    const Shape shape = channels_last_ ? Shape{batch, height, width, channels} : Shape{batch, channels, height, width};
    const TRITONSERVER_DataType type = bytes_ ? TRITONSERVER_TYPE_UINT8 : TRITONSERVER_TYPE_FP32;
    std::byte* to = request.output("pixels", type, shape, bytes_of(type, shape));
    for (const Image& image : images_) to = write(image, to);
    if (gives_size_ && request.is_wanted("image_size")) {
      const size_t bytes = sizes_.size() * sizeof(int64_t);
      std::byte* place = request.output("image_size", TRITONSERVER_TYPE_INT64, {batch, 2}, bytes);
      if (bytes != 0) std::memcpy(place, sizes_.data(), bytes);
    }
    return true;
  }

 private:
  // As wide, high and deep as the network wants it.
  bool decode(std::string_view file, Image* image) {
    if (file.size() > most_file_ || !read_png(file, std::min(kMostBytes, most_decoded_), image)) return false;
    decoded_ += image->pixels.size();
    if (image->width * image->height > most_pixels_ || decoded_ > most_batch_) return false;
    if (channels_ == 1 && image->channels > 2) {
      flatten(image, background_);
      to_gray(image);
    }
    flatten(image, background_);
    sizes_.push_back(static_cast<int64_t>(image->height));
    sizes_.push_back(static_cast<int64_t>(image->width));
    const Placement place = place_of(*image);
    if (!resizes_in_bounds(place)) return false;
    *image = resized(*image, place.width, place.height, place.box, *filter_);
    if (channels_ == 3) to_rgb(image);
    if (image->width != width_ || image->height != height_) *image = padded(*image, place);
    return true;
  }

  // As place() of decode_image_geometry.py.
  Placement place_of(const Image& image) const {
    const Box all{0, 0, static_cast<float>(image.width), static_cast<float>(image.height)};
    if (resize_ == Resize::kCrop) return {cropped(image), width_, height_, 0, 0};
    if (resize_ == Resize::kStretch) return {all, width_, height_, 0, 0};
    if (resize_ == Resize::kShortest) {
      const size_t shorter = std::min(image.width, image.height);
      const size_t width = resize_to_ * image.width / shorter, height = resize_to_ * image.height / shorter;
      if (width <= width_ && height <= height_) return {all, width, height, 0, 0};
    }
    const double ratio = std::min(static_cast<double>(width_) / static_cast<double>(image.width),
                                  static_cast<double>(height_) / static_cast<double>(image.height));
    const auto scaled = [&](size_t side) {
      return std::max(size_t{1}, static_cast<size_t>(std::nearbyint(static_cast<double>(side) * ratio)));
    };
    const size_t width = scaled(image.width), height = scaled(image.height);
    if (resize_ == Resize::kShortest) return {all, width, height, 0, 0};
    const auto start = [](size_t room, size_t side) {
      return static_cast<size_t>(std::max(std::nearbyint(static_cast<double>(room - side) / 2 - 0.1), 0.0));
    };
    return {all, width, height, start(width_, width), start(height_, height)};
  }

  Image padded(const Image& image, const Placement& place) const {
    Image out{width_, height_, image.channels, {}};
    out.pixels.assign(width_ * height_ * image.channels, pad_);
    const size_t line = image.width * image.channels;
    for (size_t row = 0; row < image.height; ++row) {
      uint8_t* to = out.pixels.data() + ((place.top + row) * width_ + place.left) * image.channels;
      std::memcpy(to, image.pixels.data() + row * line, line);
    }
    return out;
  }

  // What torchvision's Resize of the shorter side, then CenterCrop would keep of it.
  Box cropped(const Image& image) const {
    const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
    const double shorter = std::min(width, height);
    const auto part = [&](double side, size_t wanted, float* begin, float* end) {
      const double scaled = std::floor(static_cast<double>(resize_to_) * side / shorter);
      const double start = std::nearbyint((scaled - static_cast<double>(wanted)) / 2);
      const double ratio = side / scaled;
      *begin = static_cast<float>(start * ratio);
      *end = static_cast<float>(std::min((start + static_cast<double>(wanted)) * ratio, side));
    };
    Box box{};
    part(width, width_, &box.left, &box.right);
    part(height, height_, &box.top, &box.bottom);
    return box;
  }

  // Far inside of what decode_image_core.py takes: what is near it is Python's to judge.
  bool resizes_in_bounds(const Placement& place) const {
    const double rows = place.box.bottom - place.box.top, columns = place.box.right - place.box.left;
    const double between = static_cast<double>(place.width * channels_) * rows;
    return between + 64 * filter_->support * (rows + columns) <=
           static_cast<double>(std::min(kMostBytes, most_decoded_));
  }

  // [height, width, channels] in the order that the network takes, scaled; gives the place behind it.
  std::byte* write(const Image& image, std::byte* to) const {
    const size_t count = height_ * width_;
    if (channels_last_) {
      for (size_t place = 0; place < count; ++place) {
        for (size_t channel = 0; channel < channels_; ++channel) to = write(image, place, channel, to);
      }
      return to;
    }
    for (size_t channel = 0; channel < channels_; ++channel) {
      for (size_t place = 0; place < count; ++place) to = write(image, place, channel, to);
    }
    return to;
  }

  // A single value; `channel` counts in the network's order.
  std::byte* write(const Image& image, size_t place, size_t channel, std::byte* to) const {
    const uint8_t from = image.pixels[place * channels_ + (reversed_ ? channels_ - 1 - channel : channel)];
    if (bytes_) {
      *to = static_cast<std::byte>(from);
      return to + 1;
    }
    const float value = (static_cast<float>(from) * scale_ - mean_[channel]) / std_[channel];
    std::memcpy(to, &value, sizeof value);
    return to + sizeof value;
  }

  size_t height_, width_, channels_, resize_to_;
  Resize resize_;
  uint8_t pad_;
  const Filter* filter_;
  uint8_t background_;
  bool bytes_, reversed_, channels_last_, gives_size_;
  float scale_;
  std::array<float, 3> mean_, std_;
  size_t most_pixels_, most_file_, most_decoded_, most_batch_;
  size_t decoded_ = 0;  // bytes of this request's images
  std::vector<std::string_view> files_;
  std::vector<Image> images_;
  std::vector<int64_t> sizes_;  // height and width of each source
};

}  // namespace

std::unique_ptr<Step> make_decode_image(const Config& config) { return std::make_unique<DecodeImage>(config); }

}  // namespace tritonkit
