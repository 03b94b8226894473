// Triton's Python backend with the shipped steps in C++: NVIDIA's library has every model, and here a step's plain
// requests are answered before they reach its stub. No exception leaves these functions.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "step.h"

namespace tritonkit {

const char* const kBackend = "python";

namespace {

using AttributeFunction = TRITONSERVER_Error* (*)(TRITONBACKEND_Backend*, TRITONBACKEND_BackendAttribute*);
using BackendFunction = TRITONSERVER_Error* (*)(TRITONBACKEND_Backend*);
using ModelFunction = TRITONSERVER_Error* (*)(TRITONBACKEND_Model*);
using InstanceFunction = TRITONSERVER_Error* (*)(TRITONBACKEND_ModelInstance*);
using ExecuteFunction = TRITONSERVER_Error* (*)(TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request**, uint32_t);

// NVIDIA's library; all of it or nothing.
struct Python {
  AttributeFunction attribute;
  BackendFunction initialize, finalize;
  ModelFunction model_initialize, model_finalize;
  InstanceFunction instance_initialize, instance_finalize;
  ExecuteFunction execute;
};
Python python{};

struct Instance {
  std::unique_ptr<Step> step;
  Config config;
};
// Triton's pointers to instances carry NVIDIA's state.
std::unordered_map<TRITONBACKEND_ModelInstance*, std::unique_ptr<Instance>> instances;
std::shared_mutex instances_lock;

template <typename Function>
void find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) throw Error(text("it has no ", name));
}

void load_python(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(text("found ", dlerror(), "; wanted NVIDIA's Python backend"));
  Python found{};
  find(library, "TRITONBACKEND_GetBackendAttribute", &found.attribute);
  find(library, "TRITONBACKEND_Initialize", &found.initialize);
  find(library, "TRITONBACKEND_Finalize", &found.finalize);
  find(library, "TRITONBACKEND_ModelInitialize", &found.model_initialize);
  find(library, "TRITONBACKEND_ModelFinalize", &found.model_finalize);
  find(library, "TRITONBACKEND_ModelInstanceInitialize", &found.instance_initialize);
  find(library, "TRITONBACKEND_ModelInstanceFinalize", &found.instance_finalize);
  find(library, "TRITONBACKEND_ModelInstanceExecute", &found.execute);
  python = found;
}

uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

Instance* instance_of(TRITONBACKEND_ModelInstance* triton) {
  std::shared_lock lock(instances_lock);
  auto found = instances.find(triton);
  return found == instances.end() ? nullptr : found->second.get();
}

// What goes wrong here leaves the model to Python, which has loaded it.
void add_step(TRITONBACKEND_ModelInstance* triton) {
  TRITONBACKEND_Model* model = nullptr;
  check(TRITONBACKEND_ModelInstanceModel(triton, &model));
  auto instance = std::make_unique<Instance>();
  instance->config = read_config(model);
  try {
    instance->step = make_step(instance->config);
  } catch (const std::exception& error) {
    log(TRITONSERVER_LOG_WARN, text("model '", instance->config.name, "' is served by Python alone: ", error.what()));
  }
  if (instance->step == nullptr) return;
  std::unique_lock lock(instances_lock);
  instances[triton] = std::move(instance);
}

struct Answered {
  StepRequest request;
  std::optional<Error> error;
};

// Tries the request; false leaves it to Python.
bool answer(Instance& instance, Answered& item) {
  const auto refused = [&](const std::exception& error, TRITONSERVER_Error_Code code) {
    item.error.emplace(text("model '", instance.config.name, "': ", error.what()), code);
  };
  try {
    if (item.request.is_cancelled()) throw Error("the request was cancelled", TRITONSERVER_ERROR_CANCELLED);
    return instance.step->answer(item.request);
  } catch (const Error& error) {
    refused(error, error.code());
  } catch (const std::exception& error) {  // no memory
    refused(error, TRITONSERVER_ERROR_INTERNAL);
  }
  return true;
}

// Answers go out together: what comes next in an ensemble can then run them as one batch.
void finish(TRITONBACKEND_ModelInstance* triton, std::vector<Answered>& items, uint64_t start, uint64_t computed) {
  uint64_t batch = 0;
  for (Answered& item : items) {
    if (item.error) {
      item.request.refuse(*item.error);
    } else {
      item.request.send();
      batch += static_cast<uint64_t>(item.request.batch());
    }
    log_failure(TRITONBACKEND_ModelInstanceReportStatistics(triton, item.request.triton(), !item.error, start, start,
                                                            computed, now_ns()));
    log_failure(TRITONBACKEND_RequestRelease(item.request.triton(), TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  if (batch > 0) {
    log_failure(TRITONBACKEND_ModelInstanceReportBatchStatistics(triton, batch, start, start, computed, now_ns()));
  }
}

// The requests of an execution: those answered here and those left. Its memory is there before a request is taken.
struct Work {
  explicit Work(uint32_t count) {
    left.reserve(count);
    items.reserve(count);
  }
  std::vector<TRITONBACKEND_Request*> left;
  std::vector<Answered> items;
};

void answer_plain(TRITONBACKEND_ModelInstance* triton, Instance& instance, TRITONBACKEND_Request** requests,
                  uint32_t count, Work& work) noexcept {
  const uint64_t start = now_ns();
  for (uint32_t index = 0; index < count; ++index) {
    try {
      work.items.push_back({StepRequest(requests[index], instance.config.batched()), std::nullopt});
    } catch (const std::exception&) {  // what cannot be read here, Python may
      work.left.push_back(requests[index]);
      continue;
    }
    if (answer(instance, work.items.back())) continue;
    work.items.pop_back();
    work.left.push_back(requests[index]);
  }
  finish(triton, work.items, start, now_ns());
}

// What NVIDIA's library gives back is for all of `requests`, which it has not taken then.
void leave_to_python(TRITONBACKEND_ModelInstance* triton, std::vector<TRITONBACKEND_Request*>& requests) noexcept {
  TRITONSERVER_Error* failed = python.execute(triton, requests.data(), static_cast<uint32_t>(requests.size()));
  if (failed == nullptr) return;
  for (TRITONBACKEND_Request* one : requests) {
    TRITONBACKEND_Response* response = nullptr;
    TRITONSERVER_Error* not_made = TRITONBACKEND_ResponseNew(&response, one);
    if (not_made == nullptr) {
      log_failure(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, failed));
    }
    log_failure(not_made);
    log_failure(TRITONBACKEND_RequestRelease(one, TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  TRITONSERVER_ErrorDelete(failed);
}

}  // namespace
}  // namespace tritonkit

using namespace tritonkit;

#define EXPORTED __attribute__((visibility("default")))

extern "C" {

EXPORTED TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  TRITONSERVER_Error* failed = guarded("python backend: ", [&] {
    TRITONSERVER_Message* message = nullptr;
    check(TRITONBACKEND_BackendConfig(backend, &message));
    const std::string library = read_message(message)["cmdline"]["library"].text();
    if (library.empty()) throw Error("where is NVIDIA's? wanted --backend-config=python,library=PATH");
    load_python(library);
  });
  return failed != nullptr ? failed : python.initialize(backend);
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend* backend,
                                                               TRITONBACKEND_BackendAttribute* attributes) {
  return python.attribute(backend, attributes);
}

// Triton calls it also where nothing could be loaded.
EXPORTED TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {
  return python.finalize == nullptr ? nullptr : python.finalize(backend);
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return python.model_initialize(model);
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return python.model_finalize(model);
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* triton) {
  TRITONSERVER_Error* failed = python.instance_initialize(triton);
  if (failed == nullptr) log_failure(guarded("served by Python alone: ", [&] { add_step(triton); }));
  return failed;
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* triton) {
  {
    std::unique_lock lock(instances_lock);
    instances.erase(triton);
  }
  return python.instance_finalize(triton);
}

EXPORTED TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* triton,
                                                                TRITONBACKEND_Request** requests, uint32_t count) {
  Instance* instance = instance_of(triton);
  if (instance == nullptr) return python.execute(triton, requests, count);
  std::optional<Work> work;
  try {
    work.emplace(count);
  } catch (const std::bad_alloc&) {
    return python.execute(triton, requests, count);
  }
  answer_plain(triton, *instance, requests, count, *work);
  if (!work->left.empty()) leave_to_python(triton, work->left);
  return nullptr;
}

// For whoever wants to know before Triton loads it: null where NVIDIA's library can be used, else why not. The text
// stays until the next call.
EXPORTED const char* tritonkit_try(const char* library) {
  static std::string wrong;
  wrong.clear();
  try {
    load_python(library);
    return nullptr;
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  return wrong.c_str();
}

}  // extern "C"
