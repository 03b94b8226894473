// Memory of devices that are not there. Each byte has two addresses: the one that CUDA's users get, which nobody may
// read or write, and a view for the fake's own copies and kernels. So a copy that goes past CUDA ends the process.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// In a file that whoever watches maps too, so it can be read at any time; tests/fakecuda.py has the names in this
// order.
struct counters {
  int64_t allocated_bytes, allocations, peak_bytes, refused_allocations;
  int64_t pinned_bytes, streams, sessions;
  int64_t to_device, to_host, on_device;
  int64_t runs, captures, replays, broken_captures, faults;
  int64_t spread_runs;                  // on the CPU, on several threads
  int64_t holds;                        // set by whoever watches: no run on a GPU ends before it is 0 again
  int64_t engines_built, engines_read;  // of TensorRT
};
extern struct counters* counters;

void count(int64_t* counter, int64_t by);

int device_count(void);
// Null where the device has no room.
void* device_allocate(int device, size_t bytes);
// The same for a file's content, which other processes share.
void* device_map(int device, const char* file);
bool device_free(void* place);
bool on_device(const void* place);
// The block of an address: its begin and size. False where it is in none.
bool device_block(const void* place, void** begin, size_t* bytes);
size_t device_free_bytes(int device);
size_t device_total_bytes(int device);
// The view of a place; the place itself where it is the host's. Null where a part of it is in no block.
__attribute__((visibility("default"))) void* fake_cuda_view(const void* place, size_t bytes);
