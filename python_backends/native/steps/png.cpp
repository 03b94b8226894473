// PNG: https://www.w3.org/TR/png-3/
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "image.h"

namespace tritonkit {
namespace {

// Of zlib, which every Python needs: no header has to be there.
struct Zlib {
  int (*uncompress)(unsigned char* to, unsigned long* bytes, const unsigned char* from, unsigned long size) = nullptr;
  unsigned long (*crc32)(unsigned long crc, const unsigned char* data, unsigned size) = nullptr;
  Zlib() {
    void* library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    uncompress = reinterpret_cast<decltype(uncompress)>(dlsym(library, "uncompress"));
    crc32 = reinterpret_cast<decltype(crc32)>(dlsym(library, "crc32"));
  }
};

const Zlib& zlib() {
  static const Zlib loaded;
  return loaded;
}

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
constexpr size_t kFrame = 12;  // a chunk's length, name and checksum
constexpr size_t kMostChunks = 4096;
constexpr uint32_t kMostSide = 1U << 24;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

uint32_t big_endian(std::string_view text, size_t at) {
  const unsigned char* data = bytes_of(text) + at;
  return uint32_t{data[0]} << 24 | uint32_t{data[1]} << 16 | uint32_t{data[2]} << 8 | data[3];
}

struct Chunk {
  std::string_view name, body;
};

// The next chunk, or one without a name where there is none or it is damaged.
Chunk next_chunk(std::string_view file, size_t* at) {
  if (file.size() - *at < kFrame) return {};
  const uint32_t length = big_endian(file, *at);
  if (length > file.size() - *at - kFrame) return {};
  std::string_view whole = file.substr(*at + 4, length + 4);
  if (zlib().crc32(0, bytes_of(whole), static_cast<unsigned>(whole.size())) != big_endian(file, *at + 8 + length)) {
    return {};
  }
  *at += length + kFrame;
  return {whole.substr(0, 4), whole.substr(4)};
}

// Whether a chunk may turn, animate or change the pixels: left to whoever reads those.
bool is_unusual(const Chunk& chunk) {
  if (chunk.name == "eXIf" || chunk.name == "acTL" || chunk.name == "tRNS" || chunk.name == "CgBI") return true;
  if (chunk.name != "tEXt" && chunk.name != "zTXt" && chunk.name != "iTXt") return false;
  std::string_view keyword = chunk.body.substr(0, chunk.body.find('\0'));
  return keyword == "Raw profile type exif" || keyword == "XML:com.adobe.xmp";
}

struct Parts {
  std::string_view header, palette, data;
  std::string joined;  // what `data` shows, where it lies in several chunks
};

bool read_parts(std::string_view file, Parts* parts) {
  size_t at = kSignature.size();
  bool data_ended = false;
  for (size_t count = 0; count < kMostChunks; ++count) {
    const Chunk chunk = next_chunk(file, &at);
    if (chunk.name.empty() || is_unusual(chunk) || (count == 0) != (chunk.name == "IHDR")) return false;
    if (chunk.name == "IEND") return at == file.size() && !parts->data.empty();
    if (chunk.name == "IHDR") parts->header = chunk.body;
    if (chunk.name == "PLTE") {
      if (!parts->palette.empty() || !parts->data.empty()) return false;
      parts->palette = chunk.body;
    }
    if (chunk.name != "IDAT") {
      data_ended = !parts->data.empty();
      continue;
    }
    if (data_ended) return false;
    if (parts->data.empty()) {
      parts->data = chunk.body;
    } else {
      if (parts->joined.empty()) parts->joined = parts->data;
      parts->joined += chunk.body;
      parts->data = parts->joined;
    }
  }
  return false;
}

uint8_t paeth(int left, int above, int corner) {
  const int guess = left + above - corner;
  const int to_left = std::abs(guess - left), to_above = std::abs(guess - above), to_corner = std::abs(guess - corner);
  if (to_left <= to_above && to_left <= to_corner) return static_cast<uint8_t>(left);
  return static_cast<uint8_t>(to_above <= to_corner ? above : corner);
}

// One line without its filter. `above` is the line before it, or zeros.
bool unfilter(int kind, const uint8_t* from, const uint8_t* above, size_t size, size_t step, uint8_t* to) {
  if (kind < 0 || kind > 4) return false;
  for (size_t at = 0; at < size; ++at) {
    const int left = at < step ? 0 : to[at - step], corner = at < step ? 0 : above[at - step];
    int guess = 0;
    if (kind == 1) guess = left;
    if (kind == 2) guess = above[at];
    if (kind == 3) guess = (left + above[at]) / 2;
    if (kind == 4) guess = paeth(left, above[at], corner);
    to[at] = static_cast<uint8_t>(from[at] + guess);
  }
  return true;
}

bool look_up(std::string_view palette, Image* image) {
  std::vector<uint8_t> pixels;
  pixels.reserve(image->pixels.size() * 3);
  for (uint8_t index : image->pixels) {
    const size_t place = size_t{index} * 3;
    if (place + 3 > palette.size()) return false;
    pixels.insert(pixels.end(), bytes_of(palette) + place, bytes_of(palette) + place + 3);
  }
  image->pixels = std::move(pixels);
  image->channels = 3;
  return true;
}

}  // namespace

bool read_png(std::string_view file, size_t most_bytes, Image* image) {
  Parts parts;
  if (zlib().uncompress == nullptr || zlib().crc32 == nullptr) return false;
  if (file.substr(0, kSignature.size()) != kSignature || !read_parts(file, &parts)) return false;
  if (parts.header.size() != 13 || parts.header.substr(10) != std::string_view("\0\0\0", 3)) return false;
  const uint32_t width = big_endian(parts.header, 0), height = big_endian(parts.header, 4);
  const auto depth = static_cast<unsigned char>(parts.header[8]), color = static_cast<unsigned char>(parts.header[9]);
  constexpr std::array<size_t, 7> kChannels{1, 0, 3, 1, 2, 0, 4};  // by color type
  if (depth != 8 || color >= kChannels.size() || kChannels[color] == 0 || width == 0 || height == 0) return false;
  if (width > kMostSide || height > kMostSide) return false;
  const size_t channels = kChannels[color], line = width * channels;
  if (line * height * (color == 3 ? 3 : 1) > most_bytes) return false;

  std::vector<uint8_t> filtered((line + 1) * height);
  unsigned long size = filtered.size();
  if (zlib().uncompress(filtered.data(), &size, bytes_of(parts.data), parts.data.size()) != 0) return false;
  if (size != filtered.size()) return false;
  image->width = width;
  image->height = height;
  image->channels = channels;
  image->pixels.resize(line * height);
  const std::vector<uint8_t> zeros(line);
  for (size_t row = 0; row < height; ++row) {
    const uint8_t* from = filtered.data() + row * (line + 1);
    uint8_t* to = image->pixels.data() + row * line;
    if (!unfilter(from[0], from + 1, row == 0 ? zeros.data() : to - line, line, channels, to)) return false;
  }
  return color != 3 || look_up(parts.palette, image);
}

}  // namespace tritonkit
