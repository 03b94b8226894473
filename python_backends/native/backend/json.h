// Reads the JSON that Triton gives a backend (the model's configuration, the backend's own): RFC 8259,
// nothing is written. Numbers keep their text, because Triton writes 64-bit integers as strings.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tritonkit {

class Json {
 public:
  // Throws Error where the text is no JSON.
  static Json parse(std::string_view text);

  // A member, or an empty value where there is none: paths through absent members need no checks.
  const Json& operator[](const std::string& key) const;
  const std::vector<Json>& items() const { return items_; }
  const std::map<std::string, Json>& members() const { return members_; }
  // The text of a string or number; "true" or "false" of a Boolean; empty of everything else.
  const std::string& text() const { return text_; }
  int64_t integer(int64_t absent = 0) const;
  bool is_true() const { return text_ == "true"; }
  bool empty() const { return text_.empty() && items_.empty() && members_.empty(); }

 private:
  friend class JsonReader;
  std::string text_;
  std::vector<Json> items_;
  std::map<std::string, Json> members_;
};

}  // namespace tritonkit
