#include "image.h"

#include <algorithm>
#include <cmath>

namespace tritonkit {
namespace {

// Pillow's fixed point: 8 bits of a pixel, and two for sums of weights past one.
constexpr int kPrecision = 32 - 8 - 2;

double weigh_box(double distance) { return distance > -0.5 && distance <= 0.5 ? 1 : 0; }

double weigh_bilinear(double distance) { return std::max(1 - std::abs(distance), 0.0); }

// Keys' cubic with a = -0.5.
double weigh_bicubic(double distance) {
  constexpr double kA = -0.5;
  const double x = std::abs(distance);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

// Which pixels of a line make one of the new one, and what each counts.
struct Weights {
  size_t first = 0;
  std::vector<int> counts;
};

std::vector<Weights> weights_of(size_t from, float begin, float end, size_t to, const Filter& filter) {
  const double scale = static_cast<double>(end - begin) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0), support = filter.support * stretch;
  std::vector<Weights> all(to);
  std::vector<double> found;
  for (size_t place = 0; place < to; ++place) {
    const double center = begin + (static_cast<double>(place) + 0.5) * scale;
    const auto first = static_cast<size_t>(std::max(static_cast<int64_t>(center - support + 0.5), int64_t{0}));
    const auto last =
        static_cast<size_t>(std::min(static_cast<int64_t>(center + support + 0.5), static_cast<int64_t>(from)));
    double total = 0;
    found.clear();
    for (size_t pixel = first; pixel < last; ++pixel) {
      found.push_back(filter.weight((static_cast<double>(pixel) - center + 0.5) * (1 / stretch)));
      total += found.back();
    }
    all[place].first = first;
    for (double weight : found) {
      const double share = (total != 0 ? weight / total : weight) * (1 << kPrecision);
      all[place].counts.push_back(static_cast<int>(share + (share < 0 ? -0.5 : 0.5)));
    }
  }
  return all;
}

uint8_t rounded(int sum) { return static_cast<uint8_t>(std::clamp(sum >> kPrecision, 0, 255)); }

// Pixels `step` apart, from `first`, weighed.
uint8_t weighed(const uint8_t* first, size_t step, const Weights& weights) {
  int sum = 1 << (kPrecision - 1);
  for (int count : weights.counts) {
    sum += *first * count;
    first += step;
  }
  return rounded(sum);
}

// Rows `top` to `bottom`, at another width.
Image resized_across(const Image& image, size_t top, size_t bottom, const std::vector<Weights>& weights) {
  Image out{weights.size(), bottom - top, image.channels, {}};
  out.pixels.resize(out.width * out.height * out.channels);
  uint8_t* to = out.pixels.data();
  for (size_t row = top; row < bottom; ++row) {
    const uint8_t* from = image.pixels.data() + row * image.width * image.channels;
    for (const Weights& each : weights) {
      for (size_t channel = 0; channel < image.channels; ++channel) {
        *to++ = weighed(from + each.first * image.channels + channel, image.channels, each);
      }
    }
  }
  return out;
}

// At another height. Row 0 of the image is row `top` for the weights.
Image resized_down(const Image& image, size_t top, const std::vector<Weights>& weights) {
  Image out{image.width, weights.size(), image.channels, {}};
  const size_t line = image.width * image.channels;
  out.pixels.resize(line * out.height);
  uint8_t* to = out.pixels.data();
  for (const Weights& each : weights) {
    const uint8_t* from = image.pixels.data() + (each.first - top) * line;
    for (size_t place = 0; place < line; ++place) *to++ = weighed(from + place, line, each);
  }
  return out;
}

// Pillow 13 begins with the height where that shrinks the image more; each pass rounds, so the order shows.
bool goes_down_first(const Image& image, size_t width, size_t height) {
  const auto fewer = [](size_t from, size_t to) { return static_cast<int64_t>(from) - static_cast<int64_t>(to); };
  return height < image.height && fewer(image.height, height) > 2 * fewer(image.width, width);
}

// (value / 255), rounded, of a value below 2^24.
uint32_t over_255(uint32_t value) { return ((value >> 8) + value) >> 8; }

}  // namespace

const Filter* filter_named(std::string_view name) {
  static const Filter box{0.5, weigh_box}, bilinear{1, weigh_bilinear}, bicubic{2, weigh_bicubic};
  if (name == "box") return &box;
  if (name == "bilinear") return &bilinear;
  return name == "bicubic" ? &bicubic : nullptr;
}

void flatten(Image* image, uint8_t background) {
  if (image->channels != 2 && image->channels != 4) return;
  constexpr uint32_t kBits = 7;  // that Pillow keeps of a coefficient
  const size_t colors = image->channels - 1, count = image->width * image->height;
  for (size_t place = 0; place < count; ++place) {
    const uint8_t* from = image->pixels.data() + place * image->channels;
    const uint32_t alpha = from[colors];
    const uint32_t all = alpha * 255 + 255 * (255 - alpha);
    const uint32_t over = alpha * 255 * 255 * (1 << kBits) / all, under = 255 * (1 << kBits) - over;
    for (size_t color = 0; color < colors; ++color) {
      const uint32_t sum = from[color] * over + background * under + (0x80 << kBits);
      const auto laid = static_cast<uint8_t>(over_255(sum) >> kBits);
      image->pixels[place * colors + color] = alpha == 0 ? background : laid;
    }
  }
  image->channels = colors;
  image->pixels.resize(count * colors);
}

void to_gray(Image* image) {
  if (image->channels != 3) return;
  const size_t count = image->width * image->height;
  for (size_t place = 0; place < count; ++place) {
    const uint8_t* from = image->pixels.data() + place * 3;
    image->pixels[place] =
        static_cast<uint8_t>((from[0] * 19595U + from[1] * 38470U + from[2] * 7471U + 0x8000U) >> 16);
  }
  image->channels = 1;
  image->pixels.resize(count);
}

void to_rgb(Image* image) {
  if (image->channels != 1) return;
  std::vector<uint8_t> pixels;
  pixels.reserve(image->pixels.size() * 3);
  for (uint8_t gray : image->pixels) pixels.insert(pixels.end(), 3, gray);
  image->pixels = std::move(pixels);
  image->channels = 3;
}

Image resized(const Image& image, size_t width, size_t height, const Box& box, const Filter& filter) {
  const bool across = width != image.width || box.left != 0 || box.right != static_cast<float>(width);
  const bool down = height != image.height || box.top != 0 || box.bottom != static_cast<float>(height);
  const std::vector<Weights> columns = weights_of(image.width, box.left, box.right, width, filter);
  const std::vector<Weights> rows = weights_of(image.height, box.top, box.bottom, height, filter);
  if (!across && !down) return image;
  if (!across) return resized_down(image, 0, rows);
  if (!down) return resized_across(image, 0, image.height, columns);
  if (goes_down_first(image, width, height)) {
    return resized_across(resized_down(image, 0, rows), 0, height, columns);
  }
  const size_t top = rows.front().first, bottom = rows.back().first + rows.back().counts.size();
  return resized_down(resized_across(image, top, bottom, columns), top, rows);
}

}  // namespace tritonkit
