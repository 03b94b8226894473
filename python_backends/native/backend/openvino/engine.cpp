// OpenVINO's infer requests as engines.
#include "engine.h"

#include "openvino/network.h"

namespace tritonkit {

const char* const kBackend = "openvino";

namespace ov {
namespace {

class OvEngine : public Engine {
 public:
  OvEngine(const Config& config, const OvNetwork& network) : config_(config), network_(network) {
    inputs = network.inputs;
    outputs = network.outputs;
    required = inputs.size();
  }

  int64_t rows_for(int64_t batch) const override {
    if (!pads_batches(config_) && batch != config_.max_batch) {  // in the words of NVIDIA's backend
      throw Error(text("expected requests with batch size '", config_.max_batch, "', got '", batch,
                       "'... this error can be avoided by setting 'ENABLE_BATCH_PADDING' parameter in model configuration"
                       " to 'YES' at a performance cost."));
    }
    int64_t size = config_.batched() ? network_.size_for(batch) : 0;
    return size == 0 ? batch : size;
  }

  void run(const std::vector<InputView>& given, std::vector<OutputView>& wanted) override {
    Request* request = request_for(given);
    tensors_.clear();
    for (const InputView& view : given) {
      const TensorSpec& spec = inputs[view.spec];
      Shape shape = view.shape;
      tensors_.push_back(made<TensorPtr>(api().ov_tensor_create_from_host_ptr, element_type(spec.type),
                                         FixedShape{static_cast<int64_t>(shape.size()), shape.data()},
                                         const_cast<void*>(static_cast<const void*>(view.data))));
      check(api().ov_infer_request_set_tensor(request, spec.name.c_str(), tensors_.back().get()));
    }
    check(api().ov_infer_request_infer(request));
    for (OutputView& view : wanted) read_output(request, view);
  }

 private:
  Request* request_for(const std::vector<InputView>& given) {
    int64_t rows = config_.batched() ? given.front().shape[0] : 0;
    int64_t size = network_.form(rows) == nullptr ? 0 : rows;
    RequestPtr& request = requests_[size];
    if (!request) request = made<RequestPtr>(api().ov_compiled_model_create_infer_request, network_.form(size));
    return request.get();
  }

  void read_output(Request* request, OutputView& view) {
    tensors_.push_back(made<TensorPtr>(api().ov_infer_request_get_tensor, request, outputs[view.spec].name.c_str()));
    FixedShape shape{};
    check(api().ov_tensor_get_shape(tensors_.back().get(), &shape));
    view.shape.assign(shape.dims, shape.dims + shape.rank);
    check(api().ov_shape_free(&shape));
    void* data = nullptr;
    check(api().ov_tensor_data(tensors_.back().get(), &data));
    view.data = static_cast<std::byte*>(data);
  }

  const Config& config_;
  const OvNetwork& network_;
  std::map<int64_t, RequestPtr> requests_;  // by form
  std::vector<TensorPtr> tensors_;          // of one run, kept until the next
};

}  // namespace

std::unique_ptr<Engine> OvNetwork::open_engine() { return std::make_unique<OvEngine>(config_, *this); }

}  // namespace ov

std::string load_engine(const std::string& library) {
  ov::load(library);
  return text("OpenVINO ", ov::version());
}

std::unique_ptr<Network> open_network(const Config& config) { return std::make_unique<ov::OvNetwork>(config); }

}  // namespace tritonkit
