#include "memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { kMostBlocks = 4096, kPage = 4096, kFreed = 0xdb };
static const size_t kDeviceBytes = (size_t)1 << 32;

struct block {
  size_t begin, bytes;  // within the region, whole pages
  int device;
  bool is_file;
};

struct counters* counters;
static struct block g_blocks[kMostBlocks];  // in order
static size_t g_block_count;
static char *g_memory, *g_places, *g_views;  // the same pages, and by their places nobody reads them
static int g_devices;
static size_t g_limit;
static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t g_begun = PTHREAD_ONCE_INIT;

static void stop(const char* what) {
  perror(what);
  abort();
}

static size_t setting(const char* name, size_t absent) {
  const char* text = getenv(name);
  return text == NULL || *text == '\0' ? absent : (size_t)strtoull(text, NULL, 10);
}

static void open_counters(void) {
  const char* file = getenv("FAKE_CUDA_COUNTERS");
  int flags = MAP_SHARED | MAP_ANONYMOUS, opened = -1;
  if (file != NULL) {
    opened = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (opened < 0 || ftruncate(opened, sizeof *counters) != 0) stop(file);
    flags = MAP_SHARED;
  }
  counters = mmap(NULL, sizeof *counters, PROT_READ | PROT_WRITE, flags, opened, 0);
  if (counters == MAP_FAILED) stop("counters");
}

// Maps pages of the memory of all devices into a region. No file: a server's files have a limit.
static bool map_memory(char* region, int protection, size_t begin, size_t bytes) {
  void* place = mremap(g_memory + begin, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, region + begin);
  return place != MAP_FAILED && mprotect(place, bytes, protection) == 0;
}

static bool map_own(size_t begin, size_t bytes) {
  return map_memory(g_places, PROT_NONE, begin, bytes) && map_memory(g_views, PROT_READ | PROT_WRITE, begin, bytes);
}

static char* region_of(size_t bytes, int sharing) {
  char* region = mmap(NULL, bytes, PROT_NONE, sharing | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) stop("mmap");
  return region;
}

static void begin(void) {
  open_counters();
  g_devices = (int)setting("FAKE_CUDA_DEVICES", 1);
  g_limit = setting("FAKE_CUDA_BYTES", (size_t)1 << 30);
  if (g_devices == 0) return;
  const size_t bytes = kDeviceBytes * (size_t)g_devices;
  g_memory = region_of(bytes, MAP_SHARED);
  g_places = region_of(bytes, MAP_PRIVATE);
  g_views = region_of(bytes, MAP_PRIVATE);
  if (!map_own(0, bytes)) stop("mremap");
}

static void lock(void) {
  pthread_once(&g_begun, begin);
  pthread_mutex_lock(&g_mutex);
}

static void unlock(void) { pthread_mutex_unlock(&g_mutex); }

void count(int64_t* counter, int64_t by) { __atomic_add_fetch(counter, by, __ATOMIC_RELAXED); }

__attribute__((constructor)) static void load(void) { pthread_once(&g_begun, begin); }

int device_count(void) { return g_devices; }

bool on_device(const void* place) {
  const char* at = place;
  return g_devices > 0 && at >= g_places && at < g_places + kDeviceBytes * (size_t)g_devices;
}

static size_t used(int device) {
  size_t bytes = 0;
  for (size_t at = 0; at < g_block_count; ++at) {
    if (g_blocks[at].device == device && !g_blocks[at].is_file) bytes += g_blocks[at].bytes;
  }
  return bytes;
}

size_t device_total_bytes(int device) { return device < g_devices ? g_limit : 0; }

size_t device_free_bytes(int device) {
  lock();
  const size_t bytes = device < g_devices ? g_limit - used(device) : 0;
  unlock();
  return bytes;
}

// The first gap of a device that is large enough; the block's place in the list, or -1.
static ptrdiff_t reserve(int device, size_t bytes, bool is_file) {
  if (device < 0 || device >= g_devices || g_block_count == kMostBlocks) return -1;
  if (!is_file && (bytes > g_limit || used(device) + bytes > g_limit)) return -1;
  size_t from = kDeviceBytes * (size_t)device, at = 0;
  const size_t end = from + kDeviceBytes;
  while (at < g_block_count && g_blocks[at].begin < from) ++at;
  // A page between two blocks belongs to none.
  for (; at < g_block_count && g_blocks[at].device == device && from + bytes + kPage > g_blocks[at].begin; ++at) {
    from = g_blocks[at].begin + g_blocks[at].bytes + kPage;
  }
  if (from + bytes > end) return -1;
  memmove(&g_blocks[at + 1], &g_blocks[at], (g_block_count - at) * sizeof *g_blocks);
  g_blocks[at] = (struct block){from, bytes, device, is_file};
  ++g_block_count;
  return (ptrdiff_t)at;
}

static void count_block(const struct block* block, int sign) {
  count(&counters->allocations, sign);
  count(&counters->allocated_bytes, sign * (int64_t)block->bytes);
  if (counters->allocated_bytes > counters->peak_bytes) counters->peak_bytes = counters->allocated_bytes;
}

void* device_allocate(int device, size_t bytes) {
  const size_t pages = (bytes + kPage - 1) / kPage * kPage;
  lock();
  const ptrdiff_t at = reserve(device, pages == 0 ? kPage : pages, false);
  void* place = at < 0 ? NULL : g_places + g_blocks[at].begin;
  if (at >= 0) count_block(&g_blocks[at], 1);
  unlock();
  if (place == NULL) count(&counters->refused_allocations, 1);
  return place;
}

static bool map_file(size_t begin, size_t bytes, int file) {
  return mmap(g_places + begin, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED &&
         mmap(g_views + begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
}

void* device_map(int device, const char* file) {
  const int opened = open(file, O_RDWR | O_CLOEXEC);
  struct stat status;
  if (opened < 0 || fstat(opened, &status) != 0) return NULL;
  const size_t pages = ((size_t)status.st_size + kPage - 1) / kPage * kPage;
  lock();
  const ptrdiff_t at = reserve(device, pages, true);
  void* place = at < 0 ? NULL : g_places + g_blocks[at].begin;
  if (place != NULL && !map_file(g_blocks[at].begin, pages, opened)) stop("mmap");
  if (place != NULL) count_block(&g_blocks[at], 1);
  unlock();
  close(opened);
  return place;
}

static ptrdiff_t find(const void* place) {
  if (!on_device(place)) return -1;
  const size_t at = (size_t)((const char*)place - g_places);
  for (size_t block = 0; block < g_block_count; ++block) {
    if (at >= g_blocks[block].begin && at < g_blocks[block].begin + g_blocks[block].bytes) return (ptrdiff_t)block;
  }
  return -1;
}

bool device_free(void* place) {
  lock();
  const ptrdiff_t at = find(place);
  const bool is_begin = at >= 0 && g_places + g_blocks[at].begin == place;
  if (is_begin) {
    const struct block block = g_blocks[at];
    if (block.is_file && !map_own(block.begin, block.bytes)) stop("mremap");
    memset(g_views + block.begin, kFreed, block.bytes);
    count_block(&block, -1);
    --g_block_count;
    memmove(&g_blocks[at], &g_blocks[at + 1], (g_block_count - (size_t)at) * sizeof *g_blocks);
  }
  unlock();
  return is_begin;
}

bool device_block(const void* place, void** block_begin, size_t* bytes) {
  lock();
  const ptrdiff_t at = find(place);
  if (at >= 0) {
    *block_begin = g_places + g_blocks[at].begin;
    *bytes = g_blocks[at].bytes;
  }
  unlock();
  return at >= 0;
}

void* fake_cuda_view(const void* place, size_t bytes) {
  if (!on_device(place)) return (void*)place;
  void* block_begin = NULL;
  size_t size = 0;
  const char* at = place;
  if (!device_block(place, &block_begin, &size) || at + bytes > (char*)block_begin + size) {
    count(&counters->faults, 1);
    return NULL;
  }
  return g_views + (at - g_places);
}
