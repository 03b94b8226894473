#include "onnxruntime/api.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "error.h"
#include "tensor.h"

namespace tritonkit::ort {

thread_local Listener* t_listener = nullptr;

void log_message(void*, int severity, const char*, const char* id, const char*, const char* message) {
  constexpr int kWarning = 2;
  if (t_listener != nullptr) t_listener->lines_.emplace_back(message);
  if (severity < kWarning) return;
  log(severity > kWarning ? TRITONSERVER_LOG_ERROR : TRITONSERVER_LOG_WARN, text("ONNX Runtime, ", id, ": ", message));
}

namespace {

// The version of the table asked for: all places below exist since 1.15, or it is said with them.
constexpr uint32_t kTableVersion = 15;
constexpr int kSaysMemory = 23, kHasShortSpins = 26;

struct ApiBase {
  const void* const* (*table)(uint32_t version);
  const char* (*version)();
};

Api g_api;
std::string g_version;
Env* g_env = nullptr;
MemoryInfo* g_memory = nullptr;
bool g_shares_threads = false;

// Whether the library is 1.`minor` or newer.
bool is_since(int minor_wanted) {
  int major = 0, minor = 0;
  return std::sscanf(g_version.c_str(), "%d.%d", &major, &minor) == 2 && (major > 1 || minor >= minor_wanted);
}

template <typename Function>
void take(Function& function, const void* const* table, size_t place) {
  std::memcpy(&function, &table[place], sizeof function);
}

void fill(const void* const* table) {
  Api& a = g_api;
  take(a.error_message, table, 2);
  take(a.create_env_with_logger, table, 4);
  take(a.create_session, table, 7);
  take(a.create_session_from_array, table, 8);
  take(a.run, table, 9);
  take(a.create_session_options, table, 10);
  take(a.set_execution_mode, table, 13);
  take(a.enable_memory_pattern, table, 16);
  take(a.disable_memory_pattern, table, 17);
  take(a.enable_arena, table, 18);
  take(a.disable_arena, table, 19);
  take(a.set_log_id, table, 20);
  take(a.set_session_severity, table, 22);
  take(a.set_graph_level, table, 23);
  take(a.set_intra_op_threads, table, 24);
  take(a.set_inter_op_threads, table, 25);
  take(a.register_operators, table, 29);
  take(a.input_count, table, 30);
  take(a.output_count, table, 31);
  take(a.optional_count, table, 32);
  take(a.input_type, table, 33);
  take(a.output_type, table, 34);
  take(a.optional_type, table, 35);
  take(a.input_name, table, 36);
  take(a.output_name, table, 37);
  take(a.optional_name, table, 38);
  take(a.create_run_options, table, 39);
  take(a.create_tensor, table, 48);
  take(a.create_tensor_over, table, 49);
  take(a.is_tensor, table, 50);
  take(a.tensor_data, table, 51);
  take(a.string_bytes, table, 53);
  take(a.string_content, table, 54);
  take(a.as_tensor_info, table, 55);
  take(a.element_type, table, 60);
  take(a.rank, table, 61);
  take(a.dims, table, 62);
  take(a.shape_info, table, 65);
  take(a.create_memory_info, table, 68);
  take(a.create_cpu_memory_info, table, 69);
  take(a.memory_name, table, 71);
  take(a.free, table, 76);
  take(a.default_allocator, table, 78);
  take(a.release_env, table, 92);
  take(a.release_status, table, 93);
  take(a.release_memory_info, table, 94);
  take(a.release_session, table, 95);
  take(a.release_value, table, 96);
  take(a.release_run_options, table, 97);
  take(a.release_type_info, table, 98);
  take(a.release_shape_info, table, 99);
  take(a.release_session_options, table, 100);
  take(a.disable_session_threads, table, 120);
  take(a.create_thread_options, table, 121);
  take(a.release_thread_options, table, 122);
  take(a.add_session_entry, table, 130);
  take(a.run_with_binding, table, 133);
  take(a.create_binding, table, 134);
  take(a.release_binding, table, 135);
  take(a.bind_input, table, 136);
  take(a.bind_output, table, 137);
  take(a.set_global_intra_op_threads, table, 147);
  take(a.set_global_inter_op_threads, table, 148);
  take(a.set_global_spinning, table, 149);
  take(a.create_env_with_threads, table, 151);
  take(a.add_run_entry, table, 165);
  take(a.append_tensorrt, table, 170);
  take(a.create_tensorrt_options, table, 171);
  take(a.update_tensorrt_options, table, 172);
  take(a.release_tensorrt_options, table, 174);
  take(a.append_cuda, table, 204);
  take(a.create_cuda_options, table, 205);
  take(a.update_cuda_options, table, 206);
  take(a.release_cuda_options, table, 208);
  take(a.string_place, table, 252);
  if (!is_since(kSaysMemory)) return;
  take(a.input_memory, table, 380);
  take(a.output_memory, table, 381);
}

// An ONNX model (IR 8, opset 13) that gives back its input x of two floats as y.
constexpr unsigned char kIdentity[] = {
    0x08, 0x08, 0x3a, 0x3a, 0x0a, 0x10, 0x0a, 0x01, 'x',  0x12, 0x01, 'y',  0x22, 0x08, 'I',  'd', 'e',
    'n',  't',  'i',  't',  'y',  0x12, 0x04, 't',  'e',  's',  't',  0x5a, 0x0f, 0x0a, 0x01, 'x', 0x12,
    0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02, 0x08, 0x02, 0x62, 0x0f, 0x0a, 0x01, 'y', 0x12,
    0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02, 0x08, 0x02, 0x42, 0x02, 0x10, 0x0d};

void create_env(const SharedThreads& threads) {
  constexpr int kWarning = 2;
  if (!threads.on) return check(g_api.create_env_with_logger(log_message, nullptr, kWarning, "triton", &g_env));
  ThreadOptions* options = nullptr;
  check(g_api.create_thread_options(&options));
  ThreadOptionsPtr kept(options);
  check(g_api.set_global_intra_op_threads(options, threads.intra_op));
  check(g_api.set_global_inter_op_threads(options, threads.inter_op));
  check(g_api.set_global_spinning(options, 0));
  check(g_api.create_env_with_threads(log_message, nullptr, kWarning, "triton", options, &g_env));
}

}  // namespace

void try_session(SessionOptions* options) {
  check(g_api.set_intra_op_threads(options, 1));
  Session* session = nullptr;
  check(g_api.create_session_from_array(g_env, kIdentity, sizeof kIdentity, options, &session));
  SessionPtr kept_session(session);
  float given[] = {1.5F, -2.5F}, wanted[] = {1.5F, -2.5F};
  int64_t shape[] = {2};
  Value *input = nullptr, *output = nullptr;
  check(g_api.create_tensor_over(g_memory, given, sizeof given, shape, 1, 1, &input));
  ValuePtr kept_input(input);
  const char *input_name = "x", *output_name = "y";
  check(g_api.run(session, nullptr, &input_name, &input, 1, &output_name, 1, &output));
  ValuePtr kept_output(output);
  void* data = nullptr;
  check(g_api.tensor_data(output, &data));
  if (std::memcmp(data, wanted, sizeof wanted) != 0) throw Error("its C interface gave a wrong result");
}

namespace {

// That the table is what it is taken for: a network goes through the functions that serve requests.
void try_table() {
  SessionOptions* options = nullptr;
  check(g_api.create_session_options(&options));
  const OptionsPtr kept(options);
  try_session(options);
}

}  // namespace

Listener::Listener() { t_listener = this; }

Listener::~Listener() { t_listener = nullptr; }

const Api& api() { return g_api; }
const std::string& version() { return g_version; }

bool has_short_spins() { return is_since(kHasShortSpins); }
const Env* env() { return g_env; }
const MemoryInfo* cpu_memory() { return g_memory; }

bool shares_threads() { return g_shares_threads; }

// The environment logs through this library: it may not outlive it.
void close() {
  if (g_memory != nullptr) g_api.release_memory_info(std::exchange(g_memory, nullptr));
  if (g_env != nullptr) g_api.release_env(std::exchange(g_env, nullptr));
}

void check(Status* failed) {
  if (failed == nullptr) return;
  Error error(text("ONNX Runtime: ", g_api.error_message(failed)));
  g_api.release_status(failed);
  throw error;
}

void load(const std::filesystem::path& library, const SharedThreads& threads) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw Error(text(library.string(), ": ", dlerror()), TRITONSERVER_ERROR_NOT_FOUND);
  void* symbol = dlsym(handle, "OrtGetApiBase");
  if (symbol == nullptr) throw Error(text(library.string(), " is no ONNX Runtime: it has no OrtGetApiBase"));
  const ApiBase* (*base)() = nullptr;
  std::memcpy(&base, &symbol, sizeof base);
  g_version = base()->version();
  const void* const* table = base()->table(kTableVersion);
  if (table == nullptr) {
    throw Error(text(library.string(), " is ONNX Runtime ", g_version, ", wanted 1.", kTableVersion, " or newer"));
  }
  fill(table);
  constexpr int kArenaAllocator = 1, kDefaultMemory = 0;
  try {
    create_env(threads);
    check(g_api.create_cpu_memory_info(kArenaAllocator, kDefaultMemory, &g_memory));
    try_table();
    g_shares_threads = threads.on;
  } catch (const Error& error) {
    close();
    throw Error(text(library.string(), " (", g_version, "): ", error.what()), TRITONSERVER_ERROR_UNSUPPORTED);
  }
}

}  // namespace tritonkit::ort
