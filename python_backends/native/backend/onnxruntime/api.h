// ONNX Runtime's C interface as far as it is used here. Its functions are a table that only grows
// (onnxruntime_c_api.h: "new functions must be added to the end"), so a place in it is stable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "json.h"

namespace tritonkit::ort {

struct Status;
struct Env;
struct Session;
struct SessionOptions;
struct RunOptions;
struct ThreadOptions;
struct Value;
struct TypeInfo;
struct ShapeInfo;
struct MemoryInfo;
struct Allocator;
struct CudaOptions;
struct TensorRtOptions;
struct IoBinding;

using LogFunction = void (*)(void*, int severity, const char* category, const char* id, const char* where,
                             const char* message);

struct Api {
  const char* (*error_message)(const Status*);
  Status* (*create_env_with_logger)(LogFunction, void*, int severity, const char* id, Env**);
  Status* (*create_env_with_threads)(LogFunction, void*, int severity, const char* id, const ThreadOptions*, Env**);
  Status* (*create_thread_options)(ThreadOptions**);
  Status* (*set_global_intra_op_threads)(ThreadOptions*, int);
  Status* (*set_global_inter_op_threads)(ThreadOptions*, int);
  Status* (*set_global_spinning)(ThreadOptions*, int);
  Status* (*disable_session_threads)(SessionOptions*);
  Status* (*create_session)(const Env*, const char* path, const SessionOptions*, Session**);
  Status* (*create_session_from_array)(const Env*, const void*, size_t, const SessionOptions*, Session**);
  Status* (*run)(Session*, const RunOptions*, const char* const* input_names, const Value* const* inputs,
                 size_t input_count, const char* const* output_names, size_t output_count, Value** outputs);
  Status* (*create_session_options)(SessionOptions**);
  Status* (*set_execution_mode)(SessionOptions*, int);
  Status* (*enable_memory_pattern)(SessionOptions*);
  Status* (*disable_memory_pattern)(SessionOptions*);
  Status* (*enable_arena)(SessionOptions*);
  Status* (*disable_arena)(SessionOptions*);
  Status* (*set_log_id)(SessionOptions*, const char*);
  Status* (*set_session_severity)(SessionOptions*, int);
  Status* (*set_graph_level)(SessionOptions*, int);
  Status* (*set_intra_op_threads)(SessionOptions*, int);
  Status* (*set_inter_op_threads)(SessionOptions*, int);
  Status* (*register_operators)(SessionOptions*, const char* library, void** handle);
  Status* (*input_count)(const Session*, size_t*);
  Status* (*output_count)(const Session*, size_t*);
  Status* (*optional_count)(const Session*, size_t*);
  Status* (*input_type)(const Session*, size_t, TypeInfo**);
  Status* (*output_type)(const Session*, size_t, TypeInfo**);
  Status* (*optional_type)(const Session*, size_t, TypeInfo**);
  Status* (*input_name)(const Session*, size_t, Allocator*, char**);
  Status* (*output_name)(const Session*, size_t, Allocator*, char**);
  Status* (*optional_name)(const Session*, size_t, Allocator*, char**);
  Status* (*create_run_options)(RunOptions**);
  Status* (*create_tensor)(Allocator*, const int64_t* shape, size_t rank, int type, Value**);
  Status* (*create_tensor_over)(const MemoryInfo*, void* data, size_t bytes, const int64_t* shape, size_t rank,
                                int type, Value**);
  Status* (*tensor_data)(Value*, void**);
  Status* (*is_tensor)(const Value*, int*);
  Status* (*string_bytes)(const Value*, size_t*);
  Status* (*string_content)(const Value*, void*, size_t, size_t* offsets, size_t count);
  Status* (*string_place)(Value*, size_t index, size_t bytes, char** place);
  Status* (*as_tensor_info)(const TypeInfo*, const ShapeInfo**);
  Status* (*element_type)(const ShapeInfo*, int*);
  Status* (*rank)(const ShapeInfo*, size_t*);
  Status* (*dims)(const ShapeInfo*, int64_t*, size_t);
  Status* (*shape_info)(const Value*, ShapeInfo**);
  Status* (*create_cpu_memory_info)(int allocator, int memory, MemoryInfo**);
  Status* (*free)(Allocator*, void*);
  Status* (*default_allocator)(Allocator**);
  Status* (*add_session_entry)(SessionOptions*, const char* key, const char* value);
  Status* (*add_run_entry)(RunOptions*, const char* key, const char* value);
  Status* (*memory_name)(const MemoryInfo*, const char**);
  Status* (*input_memory)(const Session*, const MemoryInfo**, size_t count);   // null before 1.23
  Status* (*output_memory)(const Session*, const MemoryInfo**, size_t count);  // likewise
  Status* (*create_memory_info)(const char* name, int allocator, int device, int memory, MemoryInfo**);
  Status* (*run_with_binding)(Session*, const RunOptions*, const IoBinding*);
  Status* (*create_binding)(Session*, IoBinding**);
  void (*release_binding)(IoBinding*);
  Status* (*bind_input)(IoBinding*, const char* name, const Value*);
  Status* (*bind_output)(IoBinding*, const char* name, const Value*);
  Status* (*append_cuda)(SessionOptions*, const CudaOptions*);
  Status* (*create_cuda_options)(CudaOptions**);
  Status* (*update_cuda_options)(CudaOptions*, const char* const* keys, const char* const* values, size_t count);
  void (*release_cuda_options)(CudaOptions*);
  Status* (*append_tensorrt)(SessionOptions*, const TensorRtOptions*);
  Status* (*create_tensorrt_options)(TensorRtOptions**);
  Status* (*update_tensorrt_options)(TensorRtOptions*, const char* const* keys, const char* const* values,
                                     size_t count);
  void (*release_tensorrt_options)(TensorRtOptions*);
  void (*release_env)(Env*);
  void (*release_status)(Status*);
  void (*release_memory_info)(MemoryInfo*);
  void (*release_session)(Session*);
  void (*release_value)(Value*);
  void (*release_thread_options)(ThreadOptions*);
  void (*release_run_options)(RunOptions*);
  void (*release_type_info)(TypeInfo*);
  void (*release_shape_info)(ShapeInfo*);
  void (*release_session_options)(SessionOptions*);
};

// The table; valid after load().
const Api& api();
const std::string& version();

// Whether an idle worker can spin for a given time (since 1.26); an older one spins for long or not at all.
bool has_short_spins();
const Env* env();
const MemoryInfo* cpu_memory();
// Threads that all sessions share.
struct SharedThreads {
  bool on = false;
  int intra_op = 0, inter_op = 0;  // 0: as ONNX Runtime thinks fit
};
bool shares_threads();
// Loads the library and runs a network of one node; throws Error.
void load(const std::filesystem::path& library, const SharedThreads& threads);
void close();
// Runs that network on a GPU whose provider the options have; throws Error.
void try_session(SessionOptions* options);

// Keeps the log lines of this thread while it lives.
class Listener {
 public:
  Listener();
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  friend void log_message(void*, int, const char*, const char*, const char*, const char*);
  std::vector<std::string> lines_;
};

// Throws Error with ONNX Runtime's words.
void check(Status* failed);

template <typename Thing, void (*Api::*release)(Thing*)>
struct Release {
  void operator()(Thing* thing) const { (api().*release)(thing); }
};
using SessionPtr = std::unique_ptr<Session, Release<Session, &Api::release_session>>;
using OptionsPtr = std::unique_ptr<SessionOptions, Release<SessionOptions, &Api::release_session_options>>;
using ThreadOptionsPtr = std::unique_ptr<ThreadOptions, Release<ThreadOptions, &Api::release_thread_options>>;
using RunOptionsPtr = std::unique_ptr<RunOptions, Release<RunOptions, &Api::release_run_options>>;
using CudaOptionsPtr = std::unique_ptr<CudaOptions, Release<CudaOptions, &Api::release_cuda_options>>;
using TensorRtOptionsPtr = std::unique_ptr<TensorRtOptions, Release<TensorRtOptions, &Api::release_tensorrt_options>>;
using BindingPtr = std::unique_ptr<IoBinding, Release<IoBinding, &Api::release_binding>>;
using MemoryInfoPtr = std::unique_ptr<MemoryInfo, Release<MemoryInfo, &Api::release_memory_info>>;
using ValuePtr = std::unique_ptr<Value, Release<Value, &Api::release_value>>;
using TypeInfoPtr = std::unique_ptr<TypeInfo, Release<TypeInfo, &Api::release_type_info>>;
using ShapeInfoPtr = std::unique_ptr<ShapeInfo, Release<ShapeInfo, &Api::release_shape_info>>;

}  // namespace tritonkit::ort
