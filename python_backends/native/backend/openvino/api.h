// OpenVINO's C interface as far as it is used here (openvino/c/openvino.h), found by name at load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "tensor.h"

namespace tritonkit::ov {

struct Core;
struct Model;
struct Port;
struct Compiled;
struct Request;
struct Tensor;
struct Processor;
struct InputInfo;
struct OutputInfo;
struct InputTensorInfo;
struct OutputTensorInfo;

struct Dimension {
  int64_t low, high;  // equal in a fixed one; -1 is any
};
struct PartialShape {
  Dimension rank;
  Dimension* dims;
};
struct FixedShape {
  int64_t rank;
  int64_t* dims;
};
struct Version {
  const char *build, *description;
};

struct Api {
  const char* (*ov_get_last_err_msg)();
  const char* (*ov_get_error_info)(int);
  void (*ov_free)(const char*);
  int (*ov_get_openvino_version)(Version*);
  void (*ov_version_free)(Version*);
  int (*ov_core_create)(Core**);
  void (*ov_core_free)(Core*);
  int (*ov_core_add_extension)(const Core*, const char*);
  int (*ov_core_read_model)(const Core*, const char*, const char*, Model**);
  int (*ov_core_read_model_from_memory_buffer)(const Core*, const char*, size_t, const Tensor*, Model**);
  int (*ov_core_compile_model)(const Core*, const Model*, const char*, size_t, Compiled**, ...);
  void (*ov_model_free)(Model*);
  int (*ov_model_inputs_size)(const Model*, size_t*);
  int (*ov_model_outputs_size)(const Model*, size_t*);
  int (*ov_model_const_input_by_index)(const Model*, size_t, Port**);
  int (*ov_model_const_output_by_index)(const Model*, size_t, Port**);
  int (*ov_model_const_input_by_name)(const Model*, const char*, Port**);
  int (*ov_model_const_output_by_name)(const Model*, const char*, Port**);
  int (*ov_model_reshape)(const Model*, const char**, const PartialShape*, size_t);
  int (*ov_port_get_any_name)(const Port*, char**);
  int (*ov_port_get_partial_shape)(const Port*, PartialShape*);
  int (*ov_port_get_element_type)(const Port*, int*);
  void (*ov_output_const_port_free)(Port*);
  int (*ov_partial_shape_create)(int64_t, const Dimension*, PartialShape*);
  void (*ov_partial_shape_free)(PartialShape*);
  int (*ov_shape_free)(FixedShape*);
  int (*ov_preprocess_prepostprocessor_create)(const Model*, Processor**);
  void (*ov_preprocess_prepostprocessor_free)(Processor*);
  int (*ov_preprocess_prepostprocessor_get_input_info_by_name)(const Processor*, const char*, InputInfo**);
  int (*ov_preprocess_input_info_get_tensor_info)(const InputInfo*, InputTensorInfo**);
  int (*ov_preprocess_input_tensor_info_set_element_type)(InputTensorInfo*, int);
  void (*ov_preprocess_input_tensor_info_free)(InputTensorInfo*);
  void (*ov_preprocess_input_info_free)(InputInfo*);
  int (*ov_preprocess_prepostprocessor_get_output_info_by_name)(const Processor*, const char*, OutputInfo**);
  int (*ov_preprocess_output_info_get_tensor_info)(const OutputInfo*, OutputTensorInfo**);
  int (*ov_preprocess_output_set_element_type)(OutputTensorInfo*, int);
  void (*ov_preprocess_output_tensor_info_free)(OutputTensorInfo*);
  void (*ov_preprocess_output_info_free)(OutputInfo*);
  int (*ov_preprocess_prepostprocessor_build)(const Processor*, Model**);
  void (*ov_compiled_model_free)(Compiled*);
  int (*ov_compiled_model_create_infer_request)(const Compiled*, Request**);
  void (*ov_infer_request_free)(Request*);
  int (*ov_infer_request_set_tensor)(Request*, const char*, const Tensor*);
  int (*ov_infer_request_get_tensor)(const Request*, const char*, Tensor**);
  int (*ov_infer_request_infer)(Request*);
  int (*ov_tensor_create_from_host_ptr)(int, FixedShape, void*, Tensor**);
  void (*ov_tensor_free)(Tensor*);
  int (*ov_tensor_get_shape)(const Tensor*, FixedShape*);
  int (*ov_tensor_data)(const Tensor*, void**);
};

// The functions; valid after load().
const Api& api();
const std::string& version();
// Loads the library and runs a network of one node; throws Error.
void load(const std::filesystem::path& library);
// OpenVINO's number of a type, which differs by version; -1 where it has none.
int element_type(TRITONSERVER_DataType type);
TRITONSERVER_DataType triton_type(int element_type);
// Throws Error with OpenVINO's reason, without the lines that say where in its source.
void check(int status);

template <typename Thing, void (*Api::*release)(Thing*)>
struct Release {
  void operator()(Thing* thing) const { (api().*release)(thing); }
};
using CorePtr = std::unique_ptr<Core, Release<Core, &Api::ov_core_free>>;
using ModelPtr = std::unique_ptr<Model, Release<Model, &Api::ov_model_free>>;
using PortPtr = std::unique_ptr<Port, Release<Port, &Api::ov_output_const_port_free>>;
using CompiledPtr = std::unique_ptr<Compiled, Release<Compiled, &Api::ov_compiled_model_free>>;
using RequestPtr = std::unique_ptr<Request, Release<Request, &Api::ov_infer_request_free>>;
using TensorPtr = std::unique_ptr<Tensor, Release<Tensor, &Api::ov_tensor_free>>;
using ProcessorPtr = std::unique_ptr<Processor, Release<Processor, &Api::ov_preprocess_prepostprocessor_free>>;
using InputInfoPtr = std::unique_ptr<InputInfo, Release<InputInfo, &Api::ov_preprocess_input_info_free>>;
using InputTensorInfoPtr =
    std::unique_ptr<InputTensorInfo, Release<InputTensorInfo, &Api::ov_preprocess_input_tensor_info_free>>;
using OutputInfoPtr = std::unique_ptr<OutputInfo, Release<OutputInfo, &Api::ov_preprocess_output_info_free>>;
using OutputTensorInfoPtr =
    std::unique_ptr<OutputTensorInfo, Release<OutputTensorInfo, &Api::ov_preprocess_output_tensor_info_free>>;

// What a function gives through its last argument, owned.
template <typename Owned, typename... Given, typename... Arguments>
Owned made(int (*function)(Given...), Arguments... arguments) {
  typename Owned::pointer found = nullptr;
  check(function(arguments..., &found));
  return Owned(found);
}

}  // namespace tritonkit::ov
