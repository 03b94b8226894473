// NVIDIA's driver as src/tritonkit/serve/core/devices.py asks it: the functions of libcuda and of NVML, in one library
// under both names. CUDA's runtime and the libraries of CUDA's packages are here, too, for what only loads them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kSuccess = 0, kNotFound = 6, kNoDevice = 100, kOldDriver = 35 };
enum { kMajor = 75, kMinor = 76 };

struct memory {
  unsigned long long total, free, used;
};
struct process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

static unsigned long long number(const char* name, unsigned long long otherwise) {
  const char* text = getenv(name);
  return text == NULL || *text == 0 ? otherwise : strtoull(text, NULL, 10);
}

static unsigned long long total(void) { return number("FAKE_DRIVER_BYTES", 80ULL << 30); }

int cuDriverGetVersion(int* version) {
  *version = (int)number("FAKE_DRIVER_CUDA", 13000);
  return kSuccess;
}

int cuInit(unsigned flags) {
  (void)flags;
  while (number("FAKE_DRIVER_HANGS", 0)) pause();
  return (int)number("FAKE_DRIVER_ERROR", kSuccess);
}

int cuGetErrorName(int error, const char** name) {
  *name = error == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  *count = (int)number("FAKE_DRIVER_DEVICES", 1);
  return kSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return kSuccess;
}

int cuDeviceGetName(char* name, int bytes, int device) {
  (void)device;
  snprintf(name, (size_t)bytes, "NVIDIA H100 80GB HBM3");
  return kSuccess;
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  (void)device;
  *bytes = total();
  return kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == kMajor ? 9 : 0;
  return kSuccess;
}

int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  memset(uuid, device + 1, 16);
  return kSuccess;
}

int nvmlInit_v2(void) { return kSuccess; }

int nvmlSystemGetDriverVersion(char* version, unsigned bytes) {
  const char* text = getenv("FAKE_DRIVER_VERSION");
  snprintf(version, bytes, "%s", text == NULL ? "580.159.04" : text);
  return kSuccess;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  static int device;
  *handle = &device;
  return strncmp(uuid, number("FAKE_DRIVER_MIG", 0) ? "MIG-" : "GPU-", 4) == 0 ? kSuccess : kNotFound;
}

int nvmlDeviceGetMemoryInfo(void* handle, struct memory* memory) {
  (void)handle;
  memory->total = total();
  memory->free = number("FAKE_DRIVER_FREE", total());
  memory->used = memory->total - memory->free;
  return kSuccess;
}

int nvmlDeviceGetMigMode(void* handle, unsigned* now, unsigned* later) {
  (void)handle;
  *now = *later = 0;
  return kSuccess;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, struct process* processes) {
  (void)handle;
  *count = number("FAKE_DRIVER_FREE", total()) < total();
  processes[0] = (struct process){4711, total() - number("FAKE_DRIVER_FREE", total()), 0, 0};
  return kSuccess;
}

int cudaGetDeviceCount(int* count) {
  *count = (int)number("FAKE_DRIVER_DEVICES", 1);
  return number("FAKE_DRIVER_CUDA", 13000) < 13000 ? kOldDriver : kSuccess;
}

const char* cudaGetErrorString(int error) {
  return error == kOldDriver ? "CUDA driver version is insufficient for CUDA runtime version" : "unknown error";
}
