// What Triton calls. No exception leaves these functions.
#include <dlfcn.h>

#include <algorithm>
#include <memory>

#include "error.h"
#include "instance.h"

namespace tritonkit {

namespace {

struct Model {
  Config config;
  std::unique_ptr<Network> network;
};

Model* model_of(TRITONBACKEND_Model* triton) {
  void* state = nullptr;
  check(TRITONBACKEND_ModelState(triton, &state));
  return static_cast<Model*>(state);
}

Instance* instance_of(TRITONBACKEND_ModelInstance* triton) {
  void* state = nullptr;
  check(TRITONBACKEND_ModelInstanceState(triton, &state));
  return static_cast<Instance*>(state);
}

std::string named(TRITONBACKEND_Model* model) {
  const char* name = "";
  log_failure(TRITONBACKEND_ModelName(model, &name));
  return text("model '", name, "': ");
}

Placement placement_of(TRITONBACKEND_ModelInstance* triton, TRITONBACKEND_Model* model) {
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
  check(TRITONBACKEND_ModelInstanceKind(triton, &kind));
  Placement placement;
  if (kind != TRITONSERVER_INSTANCEGROUPKIND_GPU) return placement;
  placement.gpu = true;
  int32_t device = 0;
  check(TRITONBACKEND_ModelInstanceDeviceId(triton, &device));
  placement.device = device;
  TRITONBACKEND_Backend* backend = nullptr;
  check(TRITONBACKEND_ModelBackend(model, &backend));
  check(TRITONBACKEND_BackendMemoryManager(backend, &placement.memory));
  return placement;
}

// Libraries that the engine needs, in an order in which each finds what it needs itself: what is loaded is found by its
// name, so neither the server nor its stubs need a path to them.
void load_first(const std::string& paths) {
  for (const std::string& path : split_paths(paths)) {
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
      throw Error(text("--backend-config=", kBackend, ",load-first: ", dlerror()), TRITONSERVER_ERROR_NOT_FOUND);
    }
  }
}

void check_api() {
  uint32_t major = 0, minor = 0;
  check(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major != TRITONBACKEND_API_VERSION_MAJOR) {
    throw Error(text("Triton's backend API is ", major, ".", minor, ", wanted ", TRITONBACKEND_API_VERSION_MAJOR, ".x"),
                TRITONSERVER_ERROR_UNSUPPORTED);
  }
}

// What is wrong with the engine or its work; null where nothing is.
template <typename Work>
const char* why_not(const char* engine, Work work) {
  static std::string wrong;
  try {
    load_engine(engine, {});
  } catch (const std::exception& error) {
    wrong = error.what();
    return wrong.c_str();
  }
  wrong.clear();
  try {
    work();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  close_engine();
  return wrong.empty() ? nullptr : wrong.c_str();
}

}  // namespace
}  // namespace tritonkit

using namespace tritonkit;

extern "C" {

__attribute__((visibility("default"))) TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  return guarded(text(kBackend, " backend: "), [&] {
    check_api();
    TRITONSERVER_Message* message = nullptr;
    check(TRITONBACKEND_BackendConfig(backend, &message));
    const Json settings = read_message(message)["cmdline"];
    const std::string& library = settings["library"].text();
    if (library.empty()) throw Error(text("where is its engine? wanted --backend-config=", kBackend, ",library=PATH"));
    load_first(settings["load-first"].text());
    log(TRITONSERVER_LOG_INFO, text(load_engine(library, settings), " of ", library));
  });
}

__attribute__((visibility("default"))) TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend*) {
  return guarded(text(kBackend, " backend: "), [] { close_engine(); });
}

__attribute__((visibility("default"))) TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return guarded(named(model), [&] {
    auto state = std::make_unique<Model>();
    state->config = read_config(model);
    state->network = open_network(state->config);
    check(TRITONBACKEND_ModelSetState(model, state.get()));
    (void)state.release();  // until ModelFinalize
  });
}

__attribute__((visibility("default"))) TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return guarded(named(model), [&] { delete model_of(model); });
}

__attribute__((visibility("default"))) TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(
    TRITONBACKEND_ModelInstance* triton) {
  TRITONBACKEND_Model* model = nullptr;
  log_failure(TRITONBACKEND_ModelInstanceModel(triton, &model));
  return guarded(named(model), [&] {
    const Placement placement = placement_of(triton, model);
    Model* state = model_of(model);
    auto instance =
        std::make_unique<Instance>(triton, state->config, state->network->open_engine(placement), placement);
    check(TRITONBACKEND_ModelInstanceSetState(triton, instance.get()));
    (void)instance.release();  // until ModelInstanceFinalize
  });
}

__attribute__((visibility("default"))) TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(
    TRITONBACKEND_ModelInstance* triton) {
  return guarded("", [&] { delete instance_of(triton); });
}

__attribute__((visibility("default"))) TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* triton, TRITONBACKEND_Request** requests, const uint32_t count) {
  // An error given back here leaves the requests to Triton: once they are taken, each is answered instead.
  return guarded("", [&] {
    Instance* instance = instance_of(triton);
    instance->reserve(count);
    instance->execute(requests, count);
  });
}

// For whoever wants to know before Triton loads it: null where the engine can be used, else why not. The text stays
// until the next call.
__attribute__((visibility("default"))) const char* tritonkit_try(const char* engine) {
  return why_not(engine, [] {});
}

// The same for the first GPU.
__attribute__((visibility("default"))) const char* tritonkit_try_gpu(const char* engine) {
  return why_not(engine, try_gpu);
}

}  // extern "C"
