#include "json.h"

#include <cctype>
#include <cstdlib>

#include "error.h"

namespace tritonkit {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json whole() {
    Json value = read(0);
    skip_space();
    if (at_ != text_.size()) fail("the end");
    return value;
  }

 private:
  static constexpr int kDeepest = 100;

  Json read(int depth) {
    if (depth > kDeepest) fail("less depth");
    skip_space();
    Json value;
    switch (peek()) {
      case '{':
        read_object(value, depth);
        break;
      case '[':
        read_array(value, depth);
        break;
      case '"':
        value.text_ = read_string();
        break;
      default:
        value.text_ = read_word();
        break;
    }
    return value;
  }

  void read_object(Json& value, int depth) {
    take('{');
    if (take_if('}')) return;
    do {
      skip_space();
      std::string key = read_string();
      take(':');
      value.members_[key] = read(depth + 1);
    } while (take_if(','));
    take('}');
  }

  void read_array(Json& value, int depth) {
    take('[');
    if (take_if(']')) return;
    do {
      value.items_.push_back(read(depth + 1));
    } while (take_if(','));
    take(']');
  }

  std::string read_string() {
    take('"');
    std::string found;
    while (peek() != '"') {
      char letter = next();
      if (letter == '\\') {
        append_escaped(found);
      } else {
        found += letter;
      }
    }
    ++at_;
    return found;
  }

  void append_escaped(std::string& found) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kLetters = "\"\\/\b\f\n\r\t";
    char name = next();
    if (name == 'u') return append_utf8(found, read_code());
    size_t place = kNames.find(name);
    if (place == std::string_view::npos) fail("an escape");
    found += kLetters[place];
  }

  unsigned read_code() {
    unsigned code = read_hex();
    if (code < 0xD800 || code > 0xDBFF) return code;
    if (next() != '\\' || next() != 'u') fail("the second half of a surrogate pair");
    return 0x10000 + ((code - 0xD800) << 10) + (read_hex() - 0xDC00);
  }

  unsigned read_hex() {
    unsigned code = 0;
    for (int digit = 0; digit < 4; ++digit) {
      int letter = std::tolower(static_cast<unsigned char>(next()));
      if (std::isxdigit(letter) == 0) fail("a hexadecimal digit");
      code = code * 16 + static_cast<unsigned>(letter <= '9' ? letter - '0' : letter - 'a' + 10);
    }
    return code;
  }

  static void append_utf8(std::string& found, unsigned code) {
    auto tail = [&](int shift) { found += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
    if (code < 0x80) {
      found += static_cast<char>(code);
    } else if (code < 0x800) {
      found += static_cast<char>(0xC0 | (code >> 6));
      tail(0);
    } else if (code < 0x10000) {
      found += static_cast<char>(0xE0 | (code >> 12));
      tail(6), tail(0);
    } else {
      found += static_cast<char>(0xF0 | (code >> 18));
      tail(12), tail(6), tail(0);
    }
  }

  // A number, true or false; of null, nothing.
  std::string read_word() {
    size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  std::string_view("+-.").find(text_[at_]) != std::string_view::npos)) {
      ++at_;
    }
    if (at_ == start) fail("a value");
    std::string word(text_.substr(start, at_ - start));
    return word == "null" ? "" : word;
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  char peek() const {
    if (at_ >= text_.size()) fail("more");
    return text_[at_];
  }
  char next() {
    char letter = peek();
    ++at_;
    return letter;
  }
  bool take_if(char wanted) {
    skip_space();
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void take(char wanted) {
    if (!take_if(wanted)) fail(std::string(1, wanted));
  }
  [[noreturn]] void fail(const std::string& wanted) const {
    throw Error(tritonkit::text("JSON from Triton, byte ", at_, ": wanted ", wanted), TRITONSERVER_ERROR_INTERNAL);
  }

  std::string_view text_;
  size_t at_ = 0;
};

Json Json::parse(std::string_view text) { return JsonReader(text).whole(); }

const Json& Json::operator[](const std::string& key) const {
  static const Json kAbsent;
  auto found = members_.find(key);
  return found == members_.end() ? kAbsent : found->second;
}

int64_t Json::integer(int64_t absent) const {
  return text_.empty() ? absent : std::strtoll(text_.c_str(), nullptr, 10);
}

}  // namespace tritonkit
