// CUDA's runtime as the server has it: tritonserver is linked against one, so its functions are found by name in the
// process, and nothing is needed to compile or load this backend.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <shared_mutex>

#include "tensor.h"
#include "triton.h"

namespace tritonkit {

// Where an instance runs.
struct Placement {
  bool gpu = false;
  int device = 0;
  TRITONBACKEND_MemoryManager* memory = nullptr;  // Triton's pools
};

namespace cuda {

// The GPUs that this server sees; 0 where it has no CUDA runtime or no driver.
int device_count();

// Many share it, or one has it alone, who is let in before those who come later.
class CaptureLock {
 public:
  void lock();
  void unlock();
  void lock_shared();
  void unlock_shared();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int sharing_ = 0, waiting_ = 0;
  bool is_alone_ = false;
};

// While a graph is captured no other thread may ask CUDA for memory, or the capture and that thread's call both fail.
// A capture that waits lets no new run begin, so busy models do not delay it for ever. It first waits for those that
// load or unload, which take long, while runs go on.
std::shared_lock<std::shared_mutex> while_loading();
std::shared_lock<CaptureLock> while_running();

class Capturing {
 public:
  Capturing();

 private:
  std::unique_lock<std::shared_mutex> no_load_;
  std::unique_lock<CaptureLock> no_run_;
};

// A stream of one device; throws Error where CUDA cannot make one.
class Stream {
 public:
  explicit Stream(int device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  // Begins a copy between any two places; it is done after wait().
  void copy(const std::byte* from, size_t bytes, std::byte* to) const;
  void clear(std::byte* to, size_t bytes) const;
  void wait() const;

 private:
  void check_begun(int failed, const char* what) const;

  int device_;
  void* stream_ = nullptr;
};

// Memory of the host that is kept between runs: pinned and from Triton's pool where the instance is on a GPU and the
// pool has room, else usual memory. What it held is lost when it grows.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer();
  std::byte* resize(size_t bytes, const Placement& placement);

 private:
  std::byte* resize_pinned(size_t bytes, TRITONBACKEND_MemoryManager* manager);
  void free();

  TRITONBACKEND_MemoryManager* manager_ = nullptr;
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
  size_t refused_ = 0;  // bytes that the pool had no room for
  Buffer usual_;
};

// The device's memory. What it held is lost when it grows. Throws Error where there is none.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer();
  std::byte* resize(size_t bytes, int device);
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace cuda
}  // namespace tritonkit
