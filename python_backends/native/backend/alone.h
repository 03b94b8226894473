// A run that begins while no other goes on may take the cores of all instances.
#pragma once

#include "config.h"

namespace tritonkit {

// The threads of such a run.
constexpr const char* kThreadsAlone = "tritonkit.threads_alone";

// 0 where the configuration names none. Throws Error where it is no number of threads; says in the log where there are
// fewer cores.
int threads_alone(const Config& config);

// The runs that warm an instance before it is ready.
int64_t warm_runs(const Config& config);

// While it lives a run goes on.
class CountedRun {
 public:
  CountedRun();
  ~CountedRun();
  CountedRun(const CountedRun&) = delete;
  CountedRun& operator=(const CountedRun&) = delete;
  // Whether it began while no other of this backend went on, of any model.
  bool alone() const { return alone_; }

 private:
  bool alone_;
};

}  // namespace tritonkit
