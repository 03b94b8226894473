// OpenVINO's infer requests as engines.
#include "engine.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "alone.h"
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
    writes_in_place = true;
    if (network.differs_alone()) warm_runs_ = warm_runs(config);
  }

  int64_t rows_for(int64_t batch) const override {
    if (!pads_batches(config_) && batch != config_.max_batch) {  // in the words of NVIDIA's backend
      throw Error(
          text("expected requests with batch size '", config_.max_batch, "', got '", batch,
               "'... this error can be avoided by setting 'ENABLE_BATCH_PADDING' parameter in model configuration"
               " to 'YES' at a performance cost."));
    }
    int64_t size = config_.batched() ? network_.size_for(batch) : 0;
    return size == 0 ? batch : size;
  }

  void run(const std::vector<InputView>& given, std::vector<OutputView>& wanted) override {
    const CountedRun counted;
    bool alone = counted.alone() && network_.differs_alone();
    if (warm_runs_ > 0) {  // kernels and memory for the shape are found by each form
      --warm_runs_;
      run_form(given, wanted, true);
      alone = false;
    }
    run_form(given, wanted, alone);
  }

 private:
  void run_form(const std::vector<InputView>& given, std::vector<OutputView>& wanted, bool alone) {
    // A request remembers the memory that it was given. So only a run that gives it all outputs writes in place, on a
    // request of its own; a request is thrown away where the run fails, and with it what it remembers.
    bool in_place = wanted.size() == outputs.size() &&
                    std::all_of(wanted.begin(), wanted.end(), [](const OutputView& view) { return view.in_place; });
    auto slot = slot_for(given, in_place, alone);
    try {
      for (const InputView& view : given) {
        give(slot->second, slot->second.inputs[view.spec], inputs[view.spec], view.shape, view.data);
      }
      for (OutputView& view : wanted) {
        if (in_place) give(slot->second, slot->second.outputs[view.spec], outputs[view.spec], view.shape, view.data);
      }
      check(api().ov_infer_request_infer(slot->second.request.get()));
      for (OutputView& view : wanted) {
        if (!in_place) read_output(slot->second, view);
      }
    } catch (...) {
      slots_.erase(slot);
      throw;
    }
  }

  // Memory that a request was given.
  struct Given {
    const std::byte* data = nullptr;
    Shape shape;
    TensorPtr tensor;
  };
  struct Slot {
    RequestPtr request;
    std::vector<Given> inputs, outputs;  // by tensor
    std::vector<TensorPtr> results;      // of one run, kept until the next
  };
  using Slots = std::map<std::tuple<int64_t, bool, bool>, Slot>;

  Slots::iterator slot_for(const std::vector<InputView>& given, bool in_place, bool alone) {
    int64_t rows = config_.batched() && !given.empty() ? given.front().shape[0] : 0;
    int64_t size = network_.has(rows) ? rows : 0;
    auto slot = slots_.try_emplace({size, in_place, alone}).first;
    if (!slot->second.request) {
      slot->second.request = made<RequestPtr>(api().ov_compiled_model_create_infer_request, network_.form(size, alone));
      slot->second.inputs.resize(inputs.size());
      slot->second.outputs.resize(outputs.size());
    }
    slot->second.results.clear();
    return slot;
  }

  static void give(const Slot& slot, Given& known, const TensorSpec& spec, const Shape& shape, const std::byte* data) {
    if (known.tensor && known.data == data && known.shape == shape) return;
    known.shape = shape;
    known.data = data;
    // Inputs are only read; the interface knows no constant memory.
    known.tensor = made<TensorPtr>(api().ov_tensor_create_from_host_ptr, element_type(spec.type),
                                   FixedShape{static_cast<int64_t>(known.shape.size()), known.shape.data()},
                                   const_cast<void*>(static_cast<const void*>(data)));
    check(api().ov_infer_request_set_tensor(slot.request.get(), spec.name.c_str(), known.tensor.get()));
  }

  void read_output(Slot& slot, OutputView& view) {
    const TensorSpec& spec = outputs[view.spec];
    slot.results.push_back(made<TensorPtr>(api().ov_infer_request_get_tensor, slot.request.get(), spec.name.c_str()));
    const Tensor* tensor = slot.results.back().get();
    Shape found;
    if (!spec.dims.empty()) {  // the interface refuses to tell the shape of a scalar
      FixedShape shape{};
      check(api().ov_tensor_get_shape(tensor, &shape));
      found.assign(shape.dims, shape.dims + shape.rank);
      check(api().ov_shape_free(&shape));
    }
    void* data = nullptr;
    check(api().ov_tensor_data(tensor, &data));
    if (!view.in_place) {
      view.shape = std::move(found);
      view.data = static_cast<std::byte*>(data);
    } else if (found == view.shape) {
      std::memcpy(view.data, data, bytes_of(spec.type, found));
    } else {
      throw Error(text("output '", spec.name, "': found shape ", to_text(found), ", wanted ", to_text(view.shape)));
    }
  }

  const Config& config_;
  const OvNetwork& network_;
  Slots slots_;  // by the form's size, whether outputs are written in place, and whether the run is alone
  int64_t warm_runs_ = 0;
};

}  // namespace

std::unique_ptr<Engine> OvNetwork::open_engine(const Placement& placement) {
  if (placement.gpu) {
    throw Error(
        "instance kind GPU found; this openvino backend runs on the CPU only: use instance_group kind KIND_CPU, "
        "or backend onnxruntime");
  }
  return std::make_unique<OvEngine>(config_, *this);
}

}  // namespace ov

std::string load_engine(const std::string& library, const Json&) {
  ov::load(library);
  return text("OpenVINO ", ov::version());
}

void close_engine() {}

void try_gpu() { throw Error("the openvino backend runs on the CPU only"); }

std::unique_ptr<Network> open_network(const Config& config) { return std::make_unique<ov::OvNetwork>(config); }

}  // namespace tritonkit
