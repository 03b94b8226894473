// One kind of exception inside, Triton's errors at the border.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "triton.h"

namespace tritonkit {

// The backend's name.
extern const char* const kBackend;

// Streams would bring their locales into each library: two thirds of its size.
template <typename Part>
void append(std::string& to, const Part& part) {
  if constexpr (std::is_arithmetic_v<Part>) {
    static_assert(std::is_integral_v<Part> && !std::is_same_v<Part, char>);
    to += std::to_string(part);
  } else {
    to += std::string_view(part);
  }
}

template <typename... Parts>
std::string text(const Parts&... parts) {
  std::string joined;
  (append(joined, parts), ...);
  return joined;
}

// The paths in a text of paths and colons.
std::vector<std::string> split_paths(const std::string& from);
// The lines of a text without their ends; none for an empty one.
std::vector<std::string> split_lines(const std::string& from);

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_INVALID_ARG)
      : std::runtime_error(message), code_(code) {}
  TRITONSERVER_Error_Code code() const { return code_; }
  // Names in a damaged file may be no UTF-8, which no message of Triton's may carry: such bytes become '?'.
  TRITONSERVER_Error* to_triton() const;

 private:
  TRITONSERVER_Error_Code code_;
};

// Throws what one of Triton's functions gave back.
inline void check(TRITONSERVER_Error* failed) {
  if (failed == nullptr) return;
  Error error(TRITONSERVER_ErrorMessage(failed), TRITONSERVER_ErrorCode(failed));
  TRITONSERVER_ErrorDelete(failed);
  throw error;
}

// Runs `work`; what it throws becomes an error of Triton's that begins with `where`.
template <typename Work>
TRITONSERVER_Error* guarded(const std::string& where, Work work) noexcept {
  try {
    work();
  } catch (const Error& error) {
    return Error(where + error.what(), error.code()).to_triton();
  } catch (const std::exception& error) {
    return Error(where + error.what(), TRITONSERVER_ERROR_INTERNAL).to_triton();
  } catch (...) {
    return Error(where + "an exception of an unknown kind", TRITONSERVER_ERROR_INTERNAL).to_triton();
  }
  return nullptr;
}

// For calls whose failure can change nothing any more: it is logged.
void log_failure(TRITONSERVER_Error* failed);
void log(TRITONSERVER_LogLevel level, const std::string& message);

}  // namespace tritonkit
