// CUDA's runtime as far as tritonserver, its Python backend and our native backends use it: for LD_PRELOAD.
//
// A stream that was made with flags keeps its copies until somebody waits for it, the latest moment that CUDA permits:
// whoever forgets to wait reads old data.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  kSuccess = 0,
  kInvalidValue = 1,
  kNoMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidHandle = 400,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
};
enum { kHandleBytes = 64, kPropertiesBytes = 1032 };

struct copy {
  struct copy* next;
  void* to;
  const void* from;  // null: clear
  size_t bytes;
};

struct stream {
  bool waits;
  int device;
  struct copy *first, *last;
  pthread_mutex_t mutex;
  struct stream* next;
};

static __thread int t_device;
static struct stream* g_streams;
static pthread_mutex_t g_streams_mutex = PTHREAD_MUTEX_INITIALIZER;

// --- captures: while one goes on no thread may ask for memory (CUDA's global mode) ---

static int g_capturing, g_is_broken;

EXPORT void fake_cuda_begin_capture(void) {
  __atomic_store_n(&g_is_broken, 0, __ATOMIC_SEQ_CST);
  __atomic_store_n(&g_capturing, 1, __ATOMIC_SEQ_CST);
}

// Whether it is whole.
EXPORT bool fake_cuda_end_capture(void) {
  __atomic_store_n(&g_capturing, 0, __ATOMIC_SEQ_CST);
  const bool is_whole = __atomic_load_n(&g_is_broken, __ATOMIC_SEQ_CST) == 0;
  count(is_whole ? &counters->captures : &counters->broken_captures, 1);
  return is_whole;
}

static bool breaks_capture(void) {
  if (__atomic_load_n(&g_capturing, __ATOMIC_SEQ_CST) == 0) return false;
  __atomic_store_n(&g_is_broken, 1, __ATOMIC_SEQ_CST);
  return true;
}

EXPORT struct counters* fake_cuda_counters(void) { return counters; }

// --- devices ---

EXPORT const char* cudaGetErrorString(int error) {
  switch (error) {
    case kSuccess:
      return "no error";
    case kInvalidValue:
      return "invalid argument";
    case kNoMemory:
      return "out of memory";
    case kNoDevice:
      return "no CUDA-capable device is detected";
    case kInvalidDevice:
      return "invalid device ordinal";
    case kInvalidHandle:
      return "invalid resource handle";
    case kCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "operation not supported";
  }
}

EXPORT int cudaGetLastError(void) { return kSuccess; }

EXPORT int cudaGetDeviceCount(int* found) {
  *found = device_count();
  return *found == 0 ? kNoDevice : kSuccess;
}

EXPORT int cudaGetDevice(int* device) {
  *device = t_device;
  return device_count() == 0 ? kNoDevice : kSuccess;
}

EXPORT int cudaSetDevice(int device) {
  if (device_count() == 0) return kNoDevice;
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  t_device = device;
  return kSuccess;
}

// Of cudaDeviceProp what Triton reads, at its places.
EXPORT int cudaGetDeviceProperties_v2(void* properties, int device) {
  enum { kTotalMemory = 288, kMajor = 360, kMinor = 364 };
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  const size_t bytes = device_total_bytes(device);
  const int major = 9, minor = 0;
  char* at = properties;
  memset(at, 0, kPropertiesBytes);
  snprintf(at, 256, "Fake GPU");
  memcpy(at + kTotalMemory, &bytes, sizeof bytes);
  memcpy(at + kMajor, &major, sizeof major);
  memcpy(at + kMinor, &minor, sizeof minor);
  return kSuccess;
}

EXPORT int cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  snprintf(text, (size_t)bytes, "0000:%02x:00.0", device);
  return kSuccess;
}

EXPORT int cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  (void)device, (void)peer;
  *can = 0;
  return kSuccess;
}

EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  (void)peer, (void)flags;
  return kNotSupported;
}

EXPORT int cudaMemGetInfo(size_t* available, size_t* total) {
  *available = device_free_bytes(t_device);
  *total = device_total_bytes(t_device);
  return device_count() == 0 ? kNoDevice : kSuccess;
}

// --- copies ---

static int copy_now(void* to, const void* from, size_t bytes) {
  void* target = fake_cuda_view(to, bytes);
  if (bytes > 0 && target == NULL) return kInvalidValue;
  if (from == NULL) {
    memset(target, 0, bytes);
    return kSuccess;
  }
  const void* source = fake_cuda_view(from, bytes);
  if (bytes > 0 && source == NULL) return kInvalidValue;
  if (bytes > 0) memmove(target, source, bytes);
  if (on_device(to) && on_device(from)) {
    count(&counters->on_device, 1);
  } else if (on_device(to)) {
    count(&counters->to_device, 1);
  } else if (on_device(from)) {
    count(&counters->to_host, 1);
  }
  return kSuccess;
}

static int flush(struct stream* stream) {
  if (stream == NULL) return kSuccess;
  int error = kSuccess;
  pthread_mutex_lock(&stream->mutex);
  while (stream->first != NULL) {
    struct copy* copy = stream->first;
    const int failed = copy_now(copy->to, copy->from, copy->bytes);
    if (error == kSuccess) error = failed;
    stream->first = copy->next;
    free(copy);
  }
  pthread_mutex_unlock(&stream->mutex);
  return error;
}

static void flush_all(void) {
  pthread_mutex_lock(&g_streams_mutex);
  for (struct stream* stream = g_streams; stream != NULL; stream = stream->next) flush(stream);
  pthread_mutex_unlock(&g_streams_mutex);
}

static int enqueue(void* to, const void* from, size_t bytes, struct stream* stream) {
  if (stream == NULL || !stream->waits) return copy_now(to, from, bytes);
  struct copy* copy = malloc(sizeof *copy);
  *copy = (struct copy){NULL, to, from, bytes};
  pthread_mutex_lock(&stream->mutex);
  if (stream->first == NULL) {
    stream->first = copy;
  } else {
    stream->last->next = copy;
  }
  stream->last = copy;
  pthread_mutex_unlock(&stream->mutex);
  return kSuccess;
}

EXPORT int cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  (void)kind;
  return copy_now(to, from, bytes);
}

EXPORT int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, struct stream* stream) {
  (void)kind;
  return enqueue(to, from, bytes, stream);
}

EXPORT int cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  (void)to_device, (void)from_device;
  return copy_now(to, from, bytes);
}

EXPORT int cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                               struct stream* stream) {
  (void)to_device, (void)from_device;
  return enqueue(to, from, bytes, stream);
}

EXPORT int cudaMemset(void* to, int value, size_t bytes) {
  return value == 0 ? copy_now(to, NULL, bytes) : kNotSupported;
}

// Unlike a copy it needs the stream's device, as kernels do.
EXPORT int cudaMemsetAsync(void* to, int value, size_t bytes, struct stream* stream) {
  if (stream != NULL && stream->device != t_device) return kInvalidHandle;
  return value == 0 ? enqueue(to, NULL, bytes, stream) : kNotSupported;
}

// --- streams and events ---

static int create(struct stream** made, bool waits) {
  if (device_count() == 0) return kNoDevice;
  struct stream* stream = calloc(1, sizeof *stream);
  stream->waits = waits;
  stream->device = t_device;
  pthread_mutex_init(&stream->mutex, NULL);
  pthread_mutex_lock(&g_streams_mutex);
  stream->next = g_streams;
  g_streams = stream;
  pthread_mutex_unlock(&g_streams_mutex);
  count(&counters->streams, 1);
  *made = stream;
  return kSuccess;
}

EXPORT int cudaStreamCreate(struct stream** made) { return create(made, false); }

EXPORT int cudaStreamCreateWithFlags(struct stream** made, unsigned flags) { return create(made, flags != 0); }

EXPORT int cudaStreamCreateWithPriority(struct stream** made, unsigned flags, int priority) {
  (void)flags, (void)priority;
  return create(made, false);
}

EXPORT int cudaStreamDestroy(struct stream* stream) {
  flush(stream);
  pthread_mutex_lock(&g_streams_mutex);
  struct stream** at = &g_streams;
  while (*at != NULL && *at != stream) at = &(*at)->next;
  const bool is_there = *at != NULL;
  if (is_there) *at = stream->next;
  pthread_mutex_unlock(&g_streams_mutex);
  if (!is_there) return kInvalidValue;
  free(stream);
  count(&counters->streams, -1);
  return kSuccess;
}

EXPORT int cudaStreamSynchronize(struct stream* stream) { return flush(stream); }

EXPORT int cudaDeviceSynchronize(void) {
  flush_all();
  return kSuccess;
}

EXPORT int cudaStreamGetFlags(struct stream* stream, unsigned* flags) {
  *flags = stream != NULL && stream->waits;
  return kSuccess;
}

EXPORT int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return kSuccess;
}

EXPORT int cudaLaunchHostFunc(struct stream* stream, void (*function)(void*), void* data) {
  flush(stream);
  function(data);
  return kSuccess;
}

EXPORT int cudaEventRecord(void* event, struct stream* stream) {
  (void)event;
  return flush(stream);
}

EXPORT int cudaEventSynchronize(void* event) {
  (void)event;
  return kSuccess;
}

// --- memory ---

EXPORT int cudaMalloc(void** place, size_t bytes) {
  if (device_count() == 0) return kNoDevice;
  if (breaks_capture()) return kCaptureUnsupported;
  *place = device_allocate(t_device, bytes);
  return *place == NULL ? kNoMemory : kSuccess;
}

EXPORT int cudaFree(void* place) {
  if (place == NULL) return kSuccess;
  if (breaks_capture()) return kCaptureUnsupported;
  flush_all();
  return device_free(place) ? kSuccess : kInvalidValue;
}

// The size is kept before it.
enum { kHead = 4096 };

EXPORT int cudaHostAlloc(void** place, size_t bytes, unsigned flags) {
  (void)flags;
  if (device_count() == 0) return kNoDevice;
  if (breaks_capture()) return kCaptureUnsupported;
  char* head = aligned_alloc(kHead, (bytes + 2 * kHead - 1) / kHead * kHead);
  if (head == NULL) return kNoMemory;
  memcpy(head, &bytes, sizeof bytes);
  count(&counters->pinned_bytes, (int64_t)bytes);
  *place = head + kHead;
  return kSuccess;
}

EXPORT int cudaFreeHost(void* place) {
  if (place == NULL) return kSuccess;
  size_t bytes = 0;
  memcpy(&bytes, (char*)place - kHead, sizeof bytes);
  count(&counters->pinned_bytes, -(int64_t)bytes);
  free((char*)place - kHead);
  return kSuccess;
}

EXPORT int cudaMallocManaged(void** place, size_t bytes, unsigned flags) {
  (void)place, (void)bytes, (void)flags;
  return kNotSupported;
}

EXPORT int cudaMemPrefetchAsync(const void* place, size_t bytes, int device, struct stream* stream) {
  (void)place, (void)bytes, (void)device, (void)stream;
  return kNotSupported;
}

// --- memory of other processes: a handle is the path of a file ---

struct handle {
  char path[kHandleBytes];
};

EXPORT int cudaIpcOpenMemHandle(void** place, struct handle handle, unsigned flags) {
  (void)flags;
  handle.path[kHandleBytes - 1] = '\0';
  *place = device_map(t_device, handle.path);
  return *place == NULL ? kInvalidValue : kSuccess;
}

EXPORT int cudaIpcCloseMemHandle(void* place) { return device_free(place) ? kSuccess : kInvalidValue; }

EXPORT int cudaIpcGetMemHandle(struct handle* handle, void* place) {
  (void)handle, (void)place;
  return kNotSupported;
}

static int address_range(uint64_t* begin, size_t* bytes, uint64_t place) {
  void* found = NULL;
  size_t size = 0;
  if (!device_block((const void*)(uintptr_t)place, &found, &size)) return kInvalidValue;
  // CUDA permits null for what the caller does not need.
  if (begin != NULL) *begin = (uint64_t)(uintptr_t)found;
  if (bytes != NULL) *bytes = size;
  return kSuccess;
}

static int error_text(int error, const char** text) {
  *text = cudaGetErrorString(error);
  return kSuccess;
}

EXPORT int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags, int* result) {
  (void)flags;
  *function = NULL;
  if (strncmp(name, "cuMemGetAddressRange", 20) == 0) *(int (**)(uint64_t*, size_t*, uint64_t))function = address_range;
  if (strcmp(name, "cuGetErrorString") == 0) *(int (**)(int, const char**))function = error_text;
  if (result != NULL) *result = *function == NULL;
  return *function == NULL ? kNotSupported : kSuccess;
}
