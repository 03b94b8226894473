#include "error.h"

#include <algorithm>

#include "tensor.h"

namespace tritonkit {

namespace {

std::vector<std::string> split(const std::string& from, char between) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < from.size();) {
    const size_t end = std::min(from.find(between, begin), from.size());
    parts.push_back(from.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::vector<std::string> split_paths(const std::string& from) {
  std::vector<std::string> paths = split(from, ':');
  paths.erase(std::remove(paths.begin(), paths.end(), ""), paths.end());
  return paths;
}

std::vector<std::string> split_lines(const std::string& from) { return split(from, '\n'); }

TRITONSERVER_Error* Error::to_triton() const {
  std::string message = what();
  size_t wrong = 0;
  while (!is_utf8(message, &wrong)) message[wrong] = '?';
  return TRITONSERVER_ErrorNew(code_, message.c_str());
}

void log(TRITONSERVER_LogLevel level, const std::string& message) {
  TRITONSERVER_Error* failed = TRITONSERVER_LogMessage(level, kBackend, 0, message.c_str());
  if (failed != nullptr) TRITONSERVER_ErrorDelete(failed);
}

void log_failure(TRITONSERVER_Error* failed) {
  if (failed == nullptr) return;
  log(TRITONSERVER_LOG_ERROR, TRITONSERVER_ErrorMessage(failed));
  TRITONSERVER_ErrorDelete(failed);
}

}  // namespace tritonkit
