// Pixels in memory, and the operations of Pillow that decode_image needs, to the bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tritonkit {

struct Image {
  size_t width = 0, height = 0;
  size_t channels = 0;          // 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha
  std::vector<uint8_t> pixels;  // [height, width, channels]
};

// Decodes a plain PNG: 8 bits, not interlaced, gray, RGB or with a palette, with or without an alpha channel, upright,
// undamaged and of no more than `most_bytes` decoded ones. False of every other file.
bool read_png(std::string_view file, size_t most_bytes, Image* image);

// Lays what is transparent over white or black (Pillow's alpha_composite).
void flatten(Image* image, uint8_t background);
// ITU-R 601 luma, as Pillow rounds it; RGB of gray repeats it.
void to_gray(Image* image);
void to_rgb(Image* image);

struct Box {
  float left, top, right, bottom;
};

struct Filter {
  double support;
  double (*weight)(double distance);
};
// Null where the name is none of box, bilinear, bicubic.
const Filter* filter_named(std::string_view name);

// The part `box` of an image with 1 or 3 channels at another size: Pillow's resize, which weighs in fixed point.
Image resized(const Image& image, size_t width, size_t height, const Box& box, const Filter& filter);

}  // namespace tritonkit
