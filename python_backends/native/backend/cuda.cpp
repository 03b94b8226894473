#include "cuda.h"

#include <dlfcn.h>

#include <cstring>
#include <utility>

#include "error.h"

namespace tritonkit::cuda {
namespace {

constexpr int kAnyDirection = 4;      // cudaMemcpyDefault
constexpr unsigned kNonBlocking = 1;  // cudaStreamNonBlocking

struct Runtime {
  int (*count)(int*) = nullptr;
  int (*set_device)(int) = nullptr;
  int (*create)(void**, unsigned) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*synchronize)(void*) = nullptr;
  int (*copy)(void*, const void*, size_t, int, void*) = nullptr;
  int (*clear)(void*, int, size_t, void*) = nullptr;
  int (*allocate)(void**, size_t) = nullptr;
  int (*free)(void*) = nullptr;
  const char* (*message)(int) = nullptr;
};

template <typename Function>
bool find(Function& function, const char* name) {
  void* symbol = dlsym(RTLD_DEFAULT, name);
  std::memcpy(&function, &symbol, sizeof function);
  return symbol != nullptr;
}

// Null where one of the functions is not in the process.
const Runtime* find_runtime() {
  static Runtime r;
  static const bool is_whole = find(r.count, "cudaGetDeviceCount") && find(r.set_device, "cudaSetDevice") &&
                               find(r.create, "cudaStreamCreateWithFlags") && find(r.destroy, "cudaStreamDestroy") &&
                               find(r.synchronize, "cudaStreamSynchronize") && find(r.copy, "cudaMemcpyAsync") &&
                               find(r.clear, "cudaMemsetAsync") && find(r.allocate, "cudaMalloc") &&
                               find(r.free, "cudaFree") && find(r.message, "cudaGetErrorString");
  return is_whole ? &r : nullptr;
}

const Runtime& runtime() {
  const Runtime* found = find_runtime();
  if (found == nullptr) throw Error("this server has no CUDA runtime", TRITONSERVER_ERROR_UNSUPPORTED);
  return *found;
}

void check(int failed, const std::string& what) {
  if (failed == 0) return;
  throw Error(text("CUDA: ", what, ": ", runtime().message(failed)), TRITONSERVER_ERROR_INTERNAL);
}

std::shared_mutex& loads() {
  static std::shared_mutex mutex;
  return mutex;
}

CaptureLock& runs() {
  static CaptureLock lock;
  return lock;
}

}  // namespace

int device_count() {
  int count = 0;
  const Runtime* found = find_runtime();
  return found != nullptr && found->count(&count) == 0 ? count : 0;
}

void CaptureLock::lock() {
  std::unique_lock<std::mutex> held(mutex_);
  ++waiting_;
  changed_.wait(held, [&] { return !is_alone_ && sharing_ == 0; });
  --waiting_;
  is_alone_ = true;
}

void CaptureLock::unlock() {
  std::lock_guard<std::mutex> held(mutex_);
  is_alone_ = false;
  changed_.notify_all();
}

void CaptureLock::lock_shared() {
  std::unique_lock<std::mutex> held(mutex_);
  changed_.wait(held, [&] { return !is_alone_ && waiting_ == 0; });
  ++sharing_;
}

void CaptureLock::unlock_shared() {
  std::lock_guard<std::mutex> held(mutex_);
  if (--sharing_ == 0) changed_.notify_all();
}

std::shared_lock<std::shared_mutex> while_loading() { return std::shared_lock(loads()); }

std::shared_lock<CaptureLock> while_running() { return std::shared_lock(runs()); }

Capturing::Capturing() : no_load_(loads()), no_run_(runs()) {}

Stream::Stream(int device) : device_(device) {
  const auto running = while_running();
  check(runtime().set_device(device), "cudaSetDevice");
  check(runtime().create(&stream_, kNonBlocking), "cudaStreamCreateWithFlags");
}

Stream::~Stream() { runtime().destroy(stream_); }

void Stream::copy(const std::byte* from, size_t bytes, std::byte* to) const {
  if (bytes == 0) return;  // neither may point to anything
  check_begun(runtime().copy(to, from, bytes, kAnyDirection, stream_), "cudaMemcpyAsync");
}

// A copy may go on from any thread; this may be a kernel, which must belong to the thread's device.
void Stream::clear(std::byte* to, size_t bytes) const {
  if (bytes == 0) return;
  check(runtime().set_device(device_), "cudaSetDevice");
  check_begun(runtime().clear(to, 0, bytes, stream_), "cudaMemsetAsync");
}

// What was begun before a failure ends before the error is thrown: the memory that it uses may be freed then.
void Stream::check_begun(int failed, const char* what) const {
  if (failed != 0) runtime().synchronize(stream_);
  check(failed, what);
}

void Stream::wait() const { check(runtime().synchronize(stream_), "cudaStreamSynchronize"); }

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : manager_(other.manager_),
      data_(std::exchange(other.data_, nullptr)),
      capacity_(std::exchange(other.capacity_, 0)),
      refused_(other.refused_),
      usual_(std::move(other.usual_)) {}

HostBuffer::~HostBuffer() { free(); }

void HostBuffer::free() {
  if (data_ == nullptr) return;
  log_failure(TRITONBACKEND_MemoryManagerFree(manager_, data_, TRITONSERVER_MEMORY_CPU_PINNED, 0));
  data_ = nullptr;
  capacity_ = 0;
}

std::byte* HostBuffer::resize(size_t bytes, const Placement& placement) {
  if (!placement.gpu || bytes == 0) return usual_.resize(bytes);
  if (data_ != nullptr && bytes <= capacity_) return data_;
  std::byte* pinned = refused_ == 0 || bytes < refused_ ? resize_pinned(bytes, placement.memory) : nullptr;
  return pinned != nullptr ? pinned : usual_.resize(bytes);
}

std::byte* HostBuffer::resize_pinned(size_t bytes, TRITONBACKEND_MemoryManager* manager) {
  free();
  void* place = nullptr;
  TRITONSERVER_Error* failed =
      TRITONBACKEND_MemoryManagerAllocate(manager, &place, TRITONSERVER_MEMORY_CPU_PINNED, 0, bytes);
  if (failed == nullptr) {
    manager_ = manager;
    data_ = static_cast<std::byte*>(place);
    capacity_ = bytes;
    return data_;
  }
  if (refused_ == 0) {
    log(TRITONSERVER_LOG_WARN,
        text("Triton's pool of pinned memory has no room for ", bytes,
             " bytes, so copies to and from the GPU are slower;",
             " give it more by --pinned-memory-pool-byte-size: ", TRITONSERVER_ErrorMessage(failed)));
  }
  TRITONSERVER_ErrorDelete(failed);
  refused_ = bytes;
  return nullptr;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), capacity_(std::exchange(other.capacity_, 0)) {}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  const auto running = while_running();
  runtime().free(data_);
}

std::byte* DeviceBuffer::resize(size_t bytes, int device) {
  if (data_ != nullptr && bytes <= capacity_) return data_;
  const auto running = while_running();
  check(runtime().set_device(device), "cudaSetDevice");
  if (data_ != nullptr) runtime().free(std::exchange(data_, nullptr));
  capacity_ = 0;
  void* place = nullptr;
  check(runtime().allocate(&place, bytes), text("cudaMalloc of ", bytes, " bytes"));
  data_ = static_cast<std::byte*>(place);
  capacity_ = bytes;
  return data_;
}

}  // namespace tritonkit::cuda
