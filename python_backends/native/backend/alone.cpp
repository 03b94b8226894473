#include "alone.h"

#include <algorithm>
#include <atomic>

namespace tritonkit {
namespace {

std::atomic<int> g_runs{0};

}  // namespace

int threads_alone(const Config& config) {
  const std::string& found = config.parameter(kThreadsAlone);
  int threads = thread_count(text("parameter ", kThreadsAlone), found);
  warn_of_threads(text("model '", config.name, "': "), text(kThreadsAlone, " ", found), threads);
  return threads;
}

int64_t warm_runs(const Config& config) {
  int64_t runs = 0;
  for (const Json& sample : config.json["model_warmup"].items()) {
    runs += std::max<int64_t>(1, sample["count"].integer());
  }
  return runs;
}

CountedRun::CountedRun() : alone_(g_runs.fetch_add(1) == 0) {}
CountedRun::~CountedRun() { g_runs.fetch_sub(1); }

}  // namespace tritonkit
