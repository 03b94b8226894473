#include "openvino/api.h"

#include <dlfcn.h>

#include <array>
#include <cstring>

#include "error.h"

namespace tritonkit::ov {
namespace {

Api g_api;
std::string g_version;
std::array<int, 15> g_types{};   // by TRITONSERVER_DataType
bool g_copies_messages = false;  // whether each call gives its text anew, to be freed

// By TRITONSERVER_DataType: the type's number in ONNX, 0 where OpenVINO's CPU device has none of it here.
constexpr std::array<unsigned char, 15> kOnnxTypes{0, 9, 2, 4, 12, 13, 3, 5, 6, 7, 10, 1, 11, 0, 16};

// An ONNX model (IR 8, opset 13) that gives back its input x of two elements as y; the type stands at two places.
constexpr std::array<unsigned char, 66> kIdentity{
    0x08, 0x08, 0x3a, 0x3a, 0x0a, 0x10, 0x0a, 0x01, 'x',  0x12, 0x01, 'y',  0x22, 0x08, 'I',  'd', 'e',
    'n',  't',  'i',  't',  'y',  0x12, 0x04, 't',  'e',  's',  't',  0x5a, 0x0f, 0x0a, 0x01, 'x', 0x12,
    0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02, 0x08, 0x02, 0x62, 0x0f, 0x0a, 0x01, 'y', 0x12,
    0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02, 0x08, 0x02, 0x42, 0x02, 0x10, 0x0d};
constexpr size_t kInputType = 38, kOutputType = 55;

template <typename Function>
void find(void* handle, const std::filesystem::path& library, Function& function, const char* name) {
  void* symbol = dlsym(handle, name);
  if (symbol == nullptr) {
    throw Error(text(library.string(), " has no ", name, ": this version of OpenVINO is too old"),
                TRITONSERVER_ERROR_UNSUPPORTED);
  }
  std::memcpy(&function, &symbol, sizeof function);
}

void find_all(void* handle, const std::filesystem::path& library) {
#define FIND(name) find(handle, library, g_api.name, #name)
  FIND(ov_get_last_err_msg);
  FIND(ov_get_error_info);
  FIND(ov_free);
  FIND(ov_get_openvino_version);
  FIND(ov_version_free);
  FIND(ov_core_create);
  FIND(ov_core_free);
  FIND(ov_core_add_extension);
  FIND(ov_core_read_model);
  FIND(ov_core_read_model_from_memory_buffer);
  FIND(ov_core_compile_model);
  FIND(ov_model_free);
  FIND(ov_model_inputs_size);
  FIND(ov_model_outputs_size);
  FIND(ov_model_const_input_by_index);
  FIND(ov_model_const_output_by_index);
  FIND(ov_model_const_input_by_name);
  FIND(ov_model_const_output_by_name);
  FIND(ov_model_reshape);
  FIND(ov_port_get_any_name);
  FIND(ov_port_get_partial_shape);
  FIND(ov_port_get_element_type);
  FIND(ov_output_const_port_free);
  FIND(ov_partial_shape_create);
  FIND(ov_partial_shape_free);
  FIND(ov_shape_free);
  FIND(ov_preprocess_prepostprocessor_create);
  FIND(ov_preprocess_prepostprocessor_free);
  FIND(ov_preprocess_prepostprocessor_get_input_info_by_name);
  FIND(ov_preprocess_input_info_get_tensor_info);
  FIND(ov_preprocess_input_tensor_info_set_element_type);
  FIND(ov_preprocess_input_tensor_info_free);
  FIND(ov_preprocess_input_info_free);
  FIND(ov_preprocess_prepostprocessor_get_output_info_by_name);
  FIND(ov_preprocess_output_info_get_tensor_info);
  FIND(ov_preprocess_output_set_element_type);
  FIND(ov_preprocess_output_tensor_info_free);
  FIND(ov_preprocess_output_info_free);
  FIND(ov_preprocess_prepostprocessor_build);
  FIND(ov_compiled_model_free);
  FIND(ov_compiled_model_create_infer_request);
  FIND(ov_infer_request_free);
  FIND(ov_infer_request_set_tensor);
  FIND(ov_infer_request_get_tensor);
  FIND(ov_infer_request_infer);
  FIND(ov_tensor_create_from_host_ptr);
  FIND(ov_tensor_free);
  FIND(ov_tensor_get_shape);
  FIND(ov_tensor_data);
#undef FIND
}

ModelPtr identity(const Core* core, unsigned char onnx_type) {
  std::array<unsigned char, kIdentity.size()> bytes = kIdentity;
  bytes[kInputType] = bytes[kOutputType] = onnx_type;
  return made<ModelPtr>(g_api.ov_core_read_model_from_memory_buffer, core, reinterpret_cast<const char*>(bytes.data()),
                        bytes.size(), nullptr);
}

// Versions differ here. After an error; a text that is given anew has a place of its own.
void learn_messages(const Core* core) {
  Model* none = nullptr;
  if (g_api.ov_core_read_model(core, "", nullptr, &none) == 0) throw Error("its C interface read a model from nowhere");
  const char *one = g_api.ov_get_last_err_msg(), *other = g_api.ov_get_last_err_msg();
  g_copies_messages = one != other;
  if (!g_copies_messages) return;
  g_api.ov_free(one);
  g_api.ov_free(other);
}

// The numbers of types moved between versions: a network of each type is read and asked.
void learn_types(const Core* core) {
  g_types.fill(-1);
  for (size_t type = 0; type < kOnnxTypes.size(); ++type) {
    if (kOnnxTypes[type] == 0) continue;
    ModelPtr model = identity(core, kOnnxTypes[type]);
    PortPtr port = made<PortPtr>(g_api.ov_model_const_input_by_index, model.get(), size_t{0});
    check(g_api.ov_port_get_element_type(port.get(), &g_types[type]));
  }
}

// That the functions are what they are taken for: a network goes through those that serve requests.
void try_functions(const Core* core) {
  ModelPtr model = identity(core, kOnnxTypes[TRITONSERVER_TYPE_FP32]);
  Compiled* compiled = nullptr;
  check(g_api.ov_core_compile_model(core, model.get(), "CPU", 4, &compiled, "INFERENCE_NUM_THREADS", "1",
                                    "INFERENCE_PRECISION_HINT", "f32"));
  CompiledPtr kept(compiled);
  RequestPtr request = made<RequestPtr>(g_api.ov_compiled_model_create_infer_request, compiled);
  float given[] = {1.5F, -2.5F};
  int64_t dims[] = {2};
  TensorPtr input = made<TensorPtr>(g_api.ov_tensor_create_from_host_ptr, g_types[TRITONSERVER_TYPE_FP32],
                                    FixedShape{1, dims}, static_cast<void*>(given));
  check(g_api.ov_infer_request_set_tensor(request.get(), "x", input.get()));
  check(g_api.ov_infer_request_infer(request.get()));
  TensorPtr output = made<TensorPtr>(g_api.ov_infer_request_get_tensor, request.get(), "y");
  void* data = nullptr;
  check(g_api.ov_tensor_data(output.get(), &data));
  if (std::memcmp(data, given, sizeof given) != 0) throw Error("its C interface gave a wrong result");
}

}  // namespace

const Api& api() { return g_api; }
const std::string& version() { return g_version; }
int element_type(TRITONSERVER_DataType type) { return g_types.at(type); }

TRITONSERVER_DataType triton_type(int element_type) {
  for (size_t type = 1; type < g_types.size(); ++type) {
    if (g_types[type] == element_type) return static_cast<TRITONSERVER_DataType>(type);
  }
  return TRITONSERVER_TYPE_INVALID;
}

// OpenVINO keeps one text for the whole process: of two calls that fail at one moment one may get the other's reason.
void check(int status) {
  constexpr int kInvalidParameter = -14;  // refused by the interface itself, which leaves an earlier message in place
  if (status == 0) return;
  if (status == kInvalidParameter) throw Error(text("OpenVINO: ", g_api.ov_get_error_info(status)));
  const char* said = g_api.ov_get_last_err_msg();
  const std::unique_ptr<const char, void (*)(const char*)> kept(g_copies_messages ? said : nullptr, g_api.ov_free);
  std::string reason;
  for (std::string line : split_lines(said == nullptr ? "" : said)) {
    line.erase(0, line.find_first_not_of(" \t\r"));
    if (line.empty() || line.rfind("Exception from ", 0) == 0 || line.rfind("Check '", 0) == 0) continue;
    reason += text(reason.empty() ? "" : " ", line);
  }
  throw Error(text("OpenVINO: ", reason.empty() ? g_api.ov_get_error_info(status) : reason));
}

void load(const std::filesystem::path& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw Error(text(library.string(), ": ", dlerror()), TRITONSERVER_ERROR_NOT_FOUND);
  find_all(handle, library);
  Version found{};
  check(g_api.ov_get_openvino_version(&found));
  g_version = found.build;
  g_api.ov_version_free(&found);
  try {
    CorePtr core = made<CorePtr>(g_api.ov_core_create);
    learn_messages(core.get());
    learn_types(core.get());
    try_functions(core.get());
  } catch (const Error& error) {
    throw Error(text(library.string(), " (", g_version, "): ", error.what()), TRITONSERVER_ERROR_UNSUPPORTED);
  }
}

}  // namespace tritonkit::ov
