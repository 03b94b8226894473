// ONNX Runtime with a CUDA provider whose kernels are the real library's, for the CPU: the library of FAKE_CUDA_ENGINE.
//
// Tensors in memory of the device are seen through its views (memory.h). A captured run reads and writes the places
// that it had when it was captured, as a CUDA graph does. FAKE_CUDA_PROVIDER is "none" for a library that was built
// without the provider, "missing" for one whose provider lacks a library; FAKE_CUDA_LACKS names an operator that the
// provider does not have.
//
// Its TensorRT provider needs the libraries of TensorRT in the process. An engine is a file of the options that it was
// built with; FAKE_CUDA_SPLITS names an operator that divides a network, so that its inputs' profiles do not suffice.
// FAKE_CUDA_PROVIDERS names a file for the providers and options of each session with TensorRT.
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

#define EXPORT __attribute__((visibility("default")))

typedef void* status;
typedef void (*logger)(void*, int, const char*, const char*, const char*, const char*);

// Places in OrtApi (onnxruntime_c_api.h), which only grows; Triton's backends use none behind kEnd.
enum {
  kCreateStatus = 0,
  kCreateEnvWithLogger = 4,
  kCreateSession = 7,
  kRun = 9,
  kInputName = 36,
  kOutputName = 37,
  kSetSessionSeverity = 22,
  kSetThreads = 24,
  kCreateTensorOver = 49,
  kCreateMemoryInfo = 68,
  kReleaseMemoryInfo = 94,
  kReleaseSession = 95,
  kReleaseRunOptions = 97,
  kReleaseSessionOptions = 100,
  kRunWithBinding = 133,
  kCreateBinding = 134,
  kReleaseBinding = 135,
  kBindInput = 136,
  kBindOutput = 137,
  kCreateEnvWithThreads = 151,
  kAddRunEntry = 165,
  kAppendTensorRt = 170,
  kCreateTensorRtOptions = 171,
  kUpdateTensorRtOptions = 172,
  kReleaseTensorRtOptions = 174,
  kAppendCuda = 204,
  kCreateCudaOptions = 205,
  kUpdateCudaOptions = 206,
  kReleaseCudaOptions = 208,
  kInputMemory = 380,
  kOutputMemory = 381,
  kEnd = 400,
};
enum { kFail = 1, kInvalidArgument = 2, kVerbose = 0, kMostParts = 32 };

static const void* g_table[kEnd];
static const void* const* g_real;
static logger g_log;

#define REAL(place, ...) ((status (*)(__VA_ARGS__))g_real[place])

static struct counters* fake_counters(void) {
  return ((struct counters * (*)(void)) dlsym(RTLD_DEFAULT, "fake_cuda_counters"))();
}

static void bump(int64_t* counter, int64_t by) { __atomic_add_fetch(counter, by, __ATOMIC_RELAXED); }

static void* view(const void* place, size_t bytes) {
  return ((void* (*)(const void*, size_t))dlsym(RTLD_DEFAULT, "fake_cuda_view"))(place, bytes);
}

static int cuda_allocate(void** place, size_t bytes) {
  return ((int (*)(void**, size_t))dlsym(RTLD_DEFAULT, "cudaMalloc"))(place, bytes);
}

static void cuda_free(void* place) { ((int (*)(void*))dlsym(RTLD_DEFAULT, "cudaFree"))(place); }

static status fail(int code, const char* message) { return REAL(kCreateStatus, int, const char*)(code, message); }

static bool provider_is(const char* state) {
  const char* set = getenv("FAKE_CUDA_PROVIDER");
  return set != NULL && strcmp(set, state) == 0;
}

// --- what is known of the real library's objects, by their addresses ---

struct options {
  int device;
  bool graphs;
  int64_t limit;
};

struct tensorrt {
  char text[4096];  // a line for each option
  char engines[1024], timings[1024];
  bool keeps_engines, keeps_timings, has_profiles;
};

struct bound {
  const char* name;
  const void* value;
  bool is_output;
};

struct record {
  struct record* next;
  const void* of;
  enum { kOptions, kCudaMemory, kSession, kRunOptions, kBinding, kGraph, kThreads, kSpread } kind;
  struct options options;          // kOptions, kSession
  int severity;                    // kOptions
  char providers[32];              // likewise, in order
  struct tensorrt* tensorrt;       // likewise; null without
  void* weights;                   // kSession
  void* arena;                     // likewise, as large as the largest run
  size_t arena_bytes;              // likewise
  bool waits;                      // likewise
  char id[32];                     // kRunOptions, kGraph
  pthread_t thread;                // kGraph
  void* binding;                   // likewise
  struct bound bound[kMostParts];  // kBinding
  size_t count;                    // likewise
};

static struct record* g_records;
static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct record* add(const void* of, int kind) {
  struct record* made = calloc(1, sizeof *made);
  made->of = of;
  made->kind = kind;
  pthread_mutex_lock(&g_mutex);
  made->next = g_records;
  g_records = made;
  pthread_mutex_unlock(&g_mutex);
  return made;
}

static struct record* find(const void* of, int kind) {
  pthread_mutex_lock(&g_mutex);
  struct record* at = g_records;
  while (at != NULL && (at->of != of || (int)at->kind != kind)) at = at->next;
  pthread_mutex_unlock(&g_mutex);
  return at;
}

static struct record* take(const void* of, int kind) {
  pthread_mutex_lock(&g_mutex);
  struct record** at = &g_records;
  while (*at != NULL && ((*at)->of != of || (int)(*at)->kind != kind)) at = &(*at)->next;
  struct record* found = *at;
  if (found != NULL) *at = found->next;
  pthread_mutex_unlock(&g_mutex);
  return found;
}

// --- the environment, whose function for log lines is used here too ---

static status create_env(logger log, void* parameter, int severity, const char* id, void** made) {
  g_log = log;
  return REAL(kCreateEnvWithLogger, logger, void*, int, const char*, void**)(log, parameter, severity, id, made);
}

static status create_env_with_threads(logger log, void* parameter, int severity, const char* id, void* threads,
                                      void** made) {
  g_log = log;
  return REAL(kCreateEnvWithThreads, logger, void*, int, const char*, void*, void**)(log, parameter, severity, id,
                                                                                     threads, made);
}

// --- options of the provider ---

static const char* const kKnown[] = {
    "arena_extend_strategy",
    "cudnn_conv1d_pad_to_nc1d",
    "cudnn_conv_algo_search",
    "cudnn_conv_use_max_workspace",
    "device_id",
    "do_copy_in_default_stream",
    "enable_cuda_graph",
    "enable_skip_layer_norm_strict_mode",
    "fuse_conv_bias",
    "gpu_mem_limit",
    "prefer_nhwc",
    "sdpa_kernel",
    "tunable_op_enable",
    "use_ep_level_unified_stream",
    "use_tf32",
};

static bool is_known(const char* key) {
  for (size_t at = 0; at < sizeof kKnown / sizeof *kKnown; ++at) {
    if (strcmp(key, kKnown[at]) == 0) return true;
  }
  return false;
}

static status create_cuda_options(void** made) {
  if (provider_is("none")) return REAL(kCreateCudaOptions, void**)(made);
  struct options* options = calloc(1, sizeof *options);
  *made = options;
  return NULL;
}

static status update_cuda_options(struct options* options, const char* const* keys, const char* const* values,
                                  size_t count) {
  char message[256];
  int devices = 0;
  ((int (*)(int*))dlsym(RTLD_DEFAULT, "cudaGetDeviceCount"))(&devices);
  for (size_t at = 0; at < count; ++at) {
    if (!is_known(keys[at])) {
      snprintf(message, sizeof message, "Unknown provider option: \"%s\".", keys[at]);
      return fail(kInvalidArgument, message);
    }
    if (strcmp(keys[at], "device_id") == 0) options->device = atoi(values[at]);
    if (strcmp(keys[at], "gpu_mem_limit") == 0) options->limit = atoll(values[at]);
    if (strcmp(keys[at], "enable_cuda_graph") == 0) options->graphs = strcmp(values[at], "1") == 0;
  }
  if (options->device >= devices) {
    snprintf(message, sizeof message, "Invalid device ID: %d, must be between 0 (inclusive) and %d (exclusive).",
             options->device, devices);
    return fail(kFail, message);
  }
  return NULL;
}

static void release_cuda_options(struct options* options) { free(options); }

static status append_cuda(void* options, const struct options* cuda) {
  if (provider_is("missing")) {
    return fail(kFail,
                "Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open "
                "shared object file: No such file or directory");
  }
  struct record* record = find(options, kOptions);
  if (record == NULL) record = add(options, kOptions);
  record->options = *cuda;
  strcat(record->providers, " cuda");
  return NULL;
}

// --- options of the TensorRT provider ---

static const char* const kKnownOfTensorRt[] = {
    "device_id",
    "trt_auxiliary_streams",
    "trt_bf16_enable",
    "trt_build_heuristics_enable",
    "trt_builder_optimization_level",
    "trt_context_memory_sharing_enable",
    "trt_detailed_build_log",
    "trt_engine_cache_enable",
    "trt_engine_cache_path",
    "trt_engine_hw_compatible",
    "trt_force_sequential_engine_build",
    "trt_fp16_enable",
    "trt_int8_enable",
    "trt_layer_norm_fp32_fallback",
    "trt_max_partition_iterations",
    "trt_max_workspace_size",
    "trt_min_subgraph_size",
    "trt_op_types_to_exclude",
    "trt_preview_features",
    "trt_profile_max_shapes",
    "trt_profile_min_shapes",
    "trt_profile_opt_shapes",
    "trt_sparsity_enable",
    "trt_tactic_sources",
    "trt_timing_cache_enable",
    "trt_timing_cache_path",
};

static bool is_known_of_tensorrt(const char* key) {
  for (size_t at = 0; at < sizeof kKnownOfTensorRt / sizeof *kKnownOfTensorRt; ++at) {
    if (strcmp(key, kKnownOfTensorRt[at]) == 0) return true;
  }
  return false;
}

static status create_tensorrt_options(void** made) {
  if (provider_is("none")) return REAL(kCreateTensorRtOptions, void**)(made);
  *made = calloc(1, sizeof(struct tensorrt));
  return NULL;
}

static status update_tensorrt_options(struct tensorrt* options, const char* const* keys, const char* const* values,
                                      size_t count) {
  char message[256];
  for (size_t at = 0; at < count; ++at) {
    if (!is_known_of_tensorrt(keys[at])) {
      snprintf(message, sizeof message, "Unknown provider option: \"%s\".", keys[at]);
      return fail(kInvalidArgument, message);
    }
    const bool is_on = strcmp(values[at], "1") == 0;
    if (strcmp(keys[at], "trt_engine_cache_enable") == 0) options->keeps_engines = is_on;
    if (strcmp(keys[at], "trt_timing_cache_enable") == 0) options->keeps_timings = is_on;
    if (strstr(keys[at], "trt_profile_") != NULL) options->has_profiles = true;
    if (strcmp(keys[at], "trt_engine_cache_path") == 0) {
      snprintf(options->engines, sizeof options->engines, "%s", values[at]);
    } else if (strcmp(keys[at], "trt_timing_cache_path") == 0) {
      snprintf(options->timings, sizeof options->timings, "%s", values[at]);
    }
    const size_t used = strlen(options->text);
    snprintf(options->text + used, sizeof options->text - used, "%s=%s\n", keys[at], values[at]);
  }
  return NULL;
}

static void release_tensorrt_options(struct tensorrt* options) { free(options); }

// The real provider is linked against both, which the loader finds where they are open already.
static status append_tensorrt(void* options, const struct tensorrt* tensorrt) {
  static const char* const needed[] = {"libnvinfer.so.10", "libnvonnxparser.so.10"};
  for (size_t at = 0; at < sizeof needed / sizeof *needed; ++at) {
    void* library = dlopen(needed[at], RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) {
      char message[256];
      snprintf(message, sizeof message,
               "Failed to load library libonnxruntime_providers_tensorrt.so with error: %s: cannot open shared object "
               "file: No such file or directory",
               needed[at]);
      return fail(kFail, message);
    }
    dlclose(library);
  }
  struct record* record = find(options, kOptions);
  if (record == NULL) record = add(options, kOptions);
  record->tensorrt = malloc(sizeof *tensorrt);
  *record->tensorrt = *tensorrt;
  strcat(record->providers, " tensorrt");
  return NULL;
}

// Options and sessions of several threads are noted.
static status set_threads(void* options, int threads) {
  if (threads > 1) add(options, kThreads);
  return REAL(kSetThreads, void*, int)(options, threads);
}

static void release_session_options(void* options) {
  struct record* record = take(options, kOptions);
  if (record != NULL) free(record->tensorrt);
  free(record);
  free(take(options, kThreads));
  ((void (*)(void*))g_real[kReleaseSessionOptions])(options);
}

static status set_session_severity(void* options, int severity) {
  struct record* record = find(options, kOptions);
  if (record != NULL) record->severity = severity;
  return NULL;
}

// --- sessions ---

static char* content_of(const char* path, size_t* bytes) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  char* content = malloc(*bytes + 1);
  *bytes = fread(content, 1, *bytes, file);
  fclose(file);
  return content;
}

// Whether a network has the operator that the variable names.
static bool has_operator(const char* content, size_t bytes, const char* variable) {
  const char* name = getenv(variable);
  return name != NULL && *name != '\0' && memmem(content, bytes, name, strlen(name)) != NULL;
}

// A node of type If: field 4 of NodeProto.
static bool has_control_flow(const char* content, size_t bytes) {
  return memmem(content, bytes, "\x22\x02If", 4) != NULL;
}

static void say(int severity, const char* message) {
  if (g_log != NULL) g_log(NULL, severity, "", "", "", message);
}

// As inference_session.cc says it with its most detailed log.
static void say_placements(void) {
  char line[128];
  snprintf(line, sizeof line, "  %s (lonely)", getenv("FAKE_CUDA_LACKS"));
  say(kVerbose, "Node placements");
  say(kVerbose, " Node(s) placed on [CPUExecutionProvider]. Number of nodes: 1");
  say(kVerbose, line);
  say(kVerbose, " Node(s) placed on [CUDAExecutionProvider]. Number of nodes: 1");
  say(kVerbose, "  Identity (other)");
}

static status no_memory(size_t bytes) {
  char message[160];
  snprintf(message, sizeof message, "Failed to allocate memory for requested buffer of size %zu", bytes);
  return fail(kFail, message);
}

static status allocate(const struct options* options, size_t bytes, void** place) {
  if (options->limit > 0 && (int64_t)bytes > options->limit) return no_memory(bytes);
  ((int (*)(int))dlsym(RTLD_DEFAULT, "cudaSetDevice"))(options->device);
  return cuda_allocate(place, bytes) == 0 ? NULL : no_memory(bytes);
}

static status open_on_cuda(const struct record* options, const char* path, void** weights, bool* waits) {
  size_t bytes = 0;
  char* content = content_of(path, &bytes);
  if (content == NULL) return NULL;  // the real library says so
  const bool lacks = has_operator(content, bytes, "FAKE_CUDA_LACKS");
  const bool copies = has_operator(content, bytes, "FAKE_CUDA_COPIES");
  *waits = has_operator(content, bytes, "FAKE_CUDA_WAITS");
  const bool is_free = !has_control_flow(content, bytes);
  free(content);
  if (!is_free && options->options.graphs) {
    return fail(kFail,
                "This session cannot use the graph capture feature as requested by the user as the model has control "
                "flow nodes which can't be supported by CUDAExecutionProvider");
  }
  if ((lacks || copies) && options->options.graphs) {
    return fail(kFail,
                "This session cannot use the graph capture feature as requested by the user as all compute graph nodes "
                "have not been partitioned to the CUDAExecutionProvider");
  }
  if (lacks && options->severity == kVerbose) say_placements();
  return allocate(&options->options, bytes, weights);
}

static void note_providers(const struct record* options) {
  const char* path = getenv("FAKE_CUDA_PROVIDERS");
  FILE* file = path == NULL || *path == '\0' ? NULL : fopen(path, "a");
  if (file == NULL) return;
  fprintf(file, "providers=%s\n%s\n", options->providers + 1, options->tensorrt->text);
  fclose(file);
}

static void write_text(const char* folder, const char* name, const char* text) {
  char path[1200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* file = fopen(path, "w");
  if (file == NULL) return;
  fputs(text, file);
  fclose(file);
}

// An engine is taken from its folder, or built.
static status open_on_tensorrt(const struct record* options, const char* path) {
  const struct tensorrt* tensorrt = options->tensorrt;
  note_providers(options);
  size_t bytes = 0;
  char* content = content_of(path, &bytes);
  const bool splits = content != NULL && has_operator(content, bytes, "FAKE_CUDA_SPLITS");
  free(content);
  if (splits && tensorrt->has_profiles) {
    return fail(kFail, "Following input(s) has no associated shape profiles provided: /between/Identity_output_0");
  }
  const char* name = "TensorrtExecutionProvider_TRTKernel_graph_fake_sm90.engine";
  char engine[1200];
  snprintf(engine, sizeof engine, "%s/%s", tensorrt->engines, name);
  char* kept = tensorrt->keeps_engines ? content_of(engine, &bytes) : NULL;
  if (kept != NULL) {
    const bool is_whole = bytes == strlen(tensorrt->text) && memcmp(kept, tensorrt->text, bytes) == 0;
    free(kept);
    if (!is_whole) return fail(kFail, "TensorRT EP could not deserialize engine from cache");
    bump(&fake_counters()->engines_read, 1);
    return NULL;
  }
  bump(&fake_counters()->engines_built, 1);
  if (tensorrt->keeps_engines) write_text(tensorrt->engines, name, tensorrt->text);
  if (tensorrt->keeps_timings) write_text(tensorrt->timings, "TensorrtExecutionProvider_cache_sm90.timing", "");
  return NULL;
}

static status create_session(void* env, const char* path, void* options, void** made) {
  struct record* record = find(options, kOptions);
  void* weights = NULL;
  bool waits = false;
  status failed = record == NULL ? NULL : open_on_cuda(record, path, &weights, &waits);
  if (failed == NULL && record != NULL && record->tensorrt != NULL) failed = open_on_tensorrt(record, path);
  if (failed == NULL) failed = REAL(kCreateSession, void*, const char*, void*, void**)(env, path, options, made);
  if (record == NULL) {
    if (failed == NULL && find(options, kThreads) != NULL) add(*made, kSpread);
    return failed;
  }
  if (failed != NULL) {
    if (weights != NULL) cuda_free(weights);
    return failed;
  }
  struct record* session = add(*made, kSession);
  session->options = record->options;
  session->weights = weights;
  session->waits = waits;
  bump(&fake_counters()->sessions, 1);
  return NULL;
}

static void release_graphs(const void* session) {
  for (struct record* graph = take(session, kGraph); graph != NULL; graph = take(session, kGraph)) {
    ((void (*)(void*))g_real[kReleaseBinding])(graph->binding);
    free(graph);
  }
}

static void release_session(void* session) {
  struct record* record = take(session, kSession);
  if (record != NULL) {
    release_graphs(session);
    if (record->weights != NULL) cuda_free(record->weights);
    if (record->arena != NULL) cuda_free(record->arena);
    bump(&fake_counters()->sessions, -1);
    free(record);
  }
  free(take(session, kSpread));
  ((void (*)(void*))g_real[kReleaseSession])(session);
}

// The arena grows with a run that is larger than all before.
static status grow(struct record* session, size_t bytes) {
  if (bytes <= session->arena_bytes) return NULL;
  void* place = NULL;
  status failed = allocate(&session->options, bytes, &place);
  if (failed != NULL) return failed;
  if (session->arena != NULL) cuda_free(session->arena);
  session->arena = place;
  session->arena_bytes = bytes;
  return NULL;
}

static size_t bytes_of(const void* value) {
  void* info = NULL;
  size_t elements = 0;
  enum { kShapeInfo = 65, kElements = 64, kReleaseShapeInfo = 99 };
  if (REAL(kShapeInfo, const void*, void**)(value, &info) != NULL) return 0;
  REAL(kElements, const void*, size_t*)(info, &elements);
  ((void (*)(void*))g_real[kReleaseShapeInfo])(info);
  return elements * sizeof(float);
}

static status run(void* session, const void* options, const char* const* input_names, const void* const* inputs,
                  size_t input_count, const char* const* output_names, size_t output_count, void** outputs) {
  struct record* record = find(session, kSession);
  if (record != NULL) {
    size_t bytes = 0;
    for (size_t at = 0; at < input_count; ++at) bytes += bytes_of(inputs[at]);
    status failed = grow(record, bytes);
    if (failed != NULL) return failed;
    bump(&fake_counters()->runs, 1);
    while (__atomic_load_n(&fake_counters()->holds, __ATOMIC_RELAXED) != 0) usleep(1000);
  } else if (find(session, kSpread) != NULL) {
    bump(&fake_counters()->spread_runs, 1);
  }
  return REAL(kRun, void*, const void*, const char* const*, const void* const*, size_t, const char* const*, size_t,
              void**)(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
}

// --- tensors in memory of the device ---

static status create_memory_info(const char* name, int allocator, int device, int memory, void** made) {
  status failed = REAL(kCreateMemoryInfo, const char*, int, int, int, void**)(name, allocator, device, memory, made);
  if (failed == NULL && strcmp(name, "Cuda") == 0) add(*made, kCudaMemory);
  return failed;
}

static void release_memory_info(void* info) {
  free(take(info, kCudaMemory));
  ((void (*)(void*))g_real[kReleaseMemoryInfo])(info);
}

static const void* host_memory(void) {
  static void* info;
  if (info == NULL) REAL(kCreateMemoryInfo, const char*, int, int, int, void**)("Cpu", 1, 0, 0, &info);
  return info;
}

static status create_tensor_over(const void* info, void* data, size_t bytes, const int64_t* shape, size_t rank,
                                 int type, void** made) {
  const bool is_cuda = find(info, kCudaMemory) != NULL;
  void* place = view(data, bytes);
  if (bytes > 0 && is_cuda != (place != data)) {
    bump(&fake_counters()->faults, 1);
    return fail(kInvalidArgument, "a tensor's memory is not where its memory info says");
  }
  return REAL(kCreateTensorOver, const void*, void*, size_t, const int64_t*, size_t, int, void**)(
      is_cuda ? host_memory() : info, place, bytes, shape, rank, type, made);
}

static bool is_on_host(const char* tensor) {
  const char* name = getenv("FAKE_CUDA_ON_HOST");
  return name != NULL && strcmp(name, tensor) == 0;
}

static const void* device_memory(void) {
  static void* info;
  if (info == NULL) REAL(kCreateMemoryInfo, const char*, int, int, int, void**)("Cuda", 0, 0, 0, &info);
  return info;
}

// The tensors' names are those of the session's function at a place in the table.
static status tell_memory(const void* session, int names, const void** places, size_t count) {
  void* allocator = NULL;
  enum { kFree = 76, kDefaultAllocator = 78 };
  status failed = REAL(kDefaultAllocator, void**)(&allocator);
  for (size_t at = 0; failed == NULL && at < count; ++at) {
    char* name = NULL;
    failed = REAL(names, const void*, size_t, void*, char**)(session, at, allocator, &name);
    if (failed != NULL) break;
    places[at] = is_on_host(name) ? host_memory() : device_memory();
    failed = REAL(kFree, void*, void*)(allocator, name);
  }
  return failed;
}

static status tell_input_memory(const void* session, const void** places, size_t count) {
  return tell_memory(session, kInputName, places, count);
}

static status tell_output_memory(const void* session, const void** places, size_t count) {
  return tell_memory(session, kOutputName, places, count);
}

// --- graphs ---

static status add_run_entry(void* options, const char* key, const char* value) {
  if (strcmp(key, "gpu_graph_id") == 0) {
    struct record* record = find(options, kRunOptions);
    if (record == NULL) record = add(options, kRunOptions);
    snprintf(record->id, sizeof record->id, "%s", value);
  }
  return REAL(kAddRunEntry, void*, const char*, const char*)(options, key, value);
}

static void release_run_options(void* options) {
  free(take(options, kRunOptions));
  ((void (*)(void*))g_real[kReleaseRunOptions])(options);
}

static status create_binding(void* session, void** made) {
  status failed = REAL(kCreateBinding, void*, void**)(session, made);
  if (failed == NULL) add(*made, kBinding);
  return failed;
}

static void release_binding(void* binding) {
  free(take(binding, kBinding));
  ((void (*)(void*))g_real[kReleaseBinding])(binding);
}

static status bind(int place, void* binding, const char* name, const void* value) {
  struct record* record = find(binding, kBinding);
  if (record->count == kMostParts) return fail(kFail, "the fake binds no more");
  // ONNX Runtime reads it now and never again.
  if (is_on_host(name)) bump(&fake_counters()->faults, 1);
  record->bound[record->count++] = (struct bound){name, value, place == kBindOutput};
  return REAL(place, void*, const char*, const void*)(binding, name, value);
}

static status bind_input(void* binding, const char* name, const void* value) {
  return bind(kBindInput, binding, name, value);
}

static status bind_output(void* binding, const char* name, const void* value) {
  return bind(kBindOutput, binding, name, value);
}

static struct record* find_graph(const void* session, const char* id) {
  pthread_mutex_lock(&g_mutex);
  struct record* at = g_records;
  while (at != NULL && (at->of != session || at->kind != kGraph || strcmp(at->id, id) != 0 ||
                        !pthread_equal(at->thread, pthread_self()))) {
    at = at->next;
  }
  pthread_mutex_unlock(&g_mutex);
  return at;
}

static status run_bound(void* session, const void* options, const void* binding) {
  return REAL(kRunWithBinding, void*, const void*, const void*)(session, options, binding);
}

// A graph keeps the places of its first run, whatever is bound later.
static status keep_graph(void* session, const char* id, const struct record* bound) {
  struct record* graph = add(session, kGraph);
  snprintf(graph->id, sizeof graph->id, "%s", id);
  graph->thread = pthread_self();
  status failed = REAL(kCreateBinding, void*, void**)(session, &graph->binding);
  for (size_t at = 0; failed == NULL && at < bound->count; ++at) {
    const struct bound* part = &bound->bound[at];
    failed = REAL(part->is_output ? kBindOutput : kBindInput, void*, const char*, const void*)(graph->binding,
                                                                                               part->name, part->value);
  }
  return failed;
}

static status capture(void* session, const char* id, const void* options, const struct record* bound) {
  if (find(session, kSession)->waits) {
    bump(&fake_counters()->broken_captures, 1);
    return fail(kFail, "CUDA failure 900: operation not permitted when stream is capturing");
  }
  ((void (*)(void))dlsym(RTLD_DEFAULT, "fake_cuda_begin_capture"))();
  status failed = run_bound(session, options, bound->of);
  const bool is_whole = ((bool (*)(void))dlsym(RTLD_DEFAULT, "fake_cuda_end_capture"))();
  if (failed != NULL) return failed;
  if (!is_whole) {
    return fail(kFail, "CUDA failure 901: operation failed due to a previous error during capture");
  }
  return keep_graph(session, id, bound);
}

// The first run of a graph is two: one that asks for memory, one that is captured.
static status run_with_binding(void* session, const void* options, const void* binding) {
  struct record *record = find(session, kSession), *entry = find(options, kRunOptions);
  const struct record* bound = find(binding, kBinding);
  if (record == NULL || !record->options.graphs) return run_bound(session, options, binding);
  const char* id = entry == NULL ? "0" : entry->id;
  const struct record* graph = find_graph(session, id);
  if (graph != NULL) {
    bump(&fake_counters()->replays, 1);
    return run_bound(session, options, graph->binding);
  }
  size_t bytes = 0;
  for (size_t at = 0; at < bound->count; ++at) bytes += bytes_of(bound->bound[at].value);
  status failed = grow(record, bytes);
  return failed != NULL ? failed : capture(session, id, options, bound);
}

// --- the table ---

static void fill(void) {
  memcpy(g_table, g_real, sizeof g_table);
  g_table[kCreateEnvWithLogger] = (const void*)create_env;
  g_table[kCreateEnvWithThreads] = (const void*)create_env_with_threads;
  g_table[kCreateSession] = (const void*)create_session;
  g_table[kReleaseSession] = (const void*)release_session;
  g_table[kRun] = (const void*)run;
  g_table[kCreateTensorOver] = (const void*)create_tensor_over;
  g_table[kCreateMemoryInfo] = (const void*)create_memory_info;
  g_table[kReleaseMemoryInfo] = (const void*)release_memory_info;
  g_table[kReleaseRunOptions] = (const void*)release_run_options;
  g_table[kSetSessionSeverity] = (const void*)set_session_severity;
  g_table[kReleaseSessionOptions] = (const void*)release_session_options;
  g_table[kRunWithBinding] = (const void*)run_with_binding;
  g_table[kCreateBinding] = (const void*)create_binding;
  g_table[kReleaseBinding] = (const void*)release_binding;
  g_table[kBindInput] = (const void*)bind_input;
  g_table[kBindOutput] = (const void*)bind_output;
  g_table[kAddRunEntry] = (const void*)add_run_entry;
  g_table[kCreateCudaOptions] = (const void*)create_cuda_options;
  g_table[kCreateTensorRtOptions] = (const void*)create_tensorrt_options;
  if (provider_is("none")) return;
  g_table[kAppendCuda] = (const void*)append_cuda;
  g_table[kAppendTensorRt] = (const void*)append_tensorrt;
  g_table[kUpdateTensorRtOptions] = (const void*)update_tensorrt_options;
  g_table[kReleaseTensorRtOptions] = (const void*)release_tensorrt_options;
  g_table[kSetThreads] = (const void*)set_threads;
  g_table[kInputMemory] = (const void*)tell_input_memory;
  g_table[kOutputMemory] = (const void*)tell_output_memory;
  g_table[kUpdateCudaOptions] = (const void*)update_cuda_options;
  g_table[kReleaseCudaOptions] = (const void*)release_cuda_options;
}

struct base {
  const void* const* (*table)(uint32_t);
  const char* (*version)(void);
};

static const struct base* g_base;

static const void* const* table(uint32_t version) {
  g_real = g_base->table(version);
  if (g_real == NULL) return NULL;
  fill();
  return g_table;
}

static const char* version(void) { return g_base->version(); }

EXPORT const struct base* OrtGetApiBase(void) {
  static const struct base base = {table, version};
  void* engine = dlopen(getenv("FAKE_CUDA_ENGINE"), RTLD_NOW | RTLD_LOCAL);
  if (engine == NULL) return NULL;
  g_base = ((const struct base* (*)(void))dlsym(engine, "OrtGetApiBase"))();
  return &base;
}
