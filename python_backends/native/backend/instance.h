// One instance of a model: takes the requests of an execution, runs them in as few runs as their shapes allow,
// answers each.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine.h"
#include "padding.h"

namespace tritonkit {

// One request while it is answered. Its memory is used again by the next one.
struct Item {
  struct Part {
    bool present = false;
    Shape shape;
    size_t bytes = 0;
    std::vector<std::pair<const std::byte*, size_t>> buffers;
    bool on_gpu = false;
    Buffer copy;  // of strings in several buffers
    std::vector<std::string_view> strings;
  };
  TRITONBACKEND_Request* request = nullptr;
  TRITONBACKEND_Response* response = nullptr;
  std::vector<Part> parts;   // by input
  std::vector<bool> wanted;  // by output
  int64_t batch = 1;
  int64_t length = 0;  // of its padded inputs
  std::optional<Error> error;
  bool grouped = false;
};

class Instance {
 public:
  Instance(TRITONBACKEND_ModelInstance* triton, const Config& config, std::unique_ptr<Engine> engine,
           const Placement& placement);

  // Makes room for so many requests; throws where there is no memory.
  void reserve(uint32_t count);
  // Takes the requests, as many as there is room for: each is answered once and released once, whatever happens.
  void execute(TRITONBACKEND_Request** requests, uint32_t count) noexcept;

 private:
  struct Times {
    uint64_t start, compute_start, compute_end;  // nanoseconds of the steady clock
  };
  // The part of an output that is one request's.
  struct Rows {
    Shape shape;
    Shape padded;         // as the run gave it
    size_t first, count;  // elements
    size_t bytes;         // as Triton carries them
  };
  using Group = std::vector<Item*>;
  // Of an output in a response.
  struct Place {
    std::byte* data = nullptr;
    bool on_gpu = false;
    bool is_near = false;  // on the instance's own GPU
  };

  void check_axes() const;

  void read(Item& item) const;
  void read_part(Item& item, TRITONBACKEND_Input* input) const;
  bool read_buffers(Item::Part& part, TRITONBACKEND_Input* input, uint32_t buffers) const;
  void fetch(Item::Part& part) const;
  const cuda::Stream& stream() const;
  void read_strings(Item::Part& part) const;
  void fit(Item::Part& part, const TensorSpec& spec) const;
  void read_length(Item& item) const;
  bool alike(const Item& one, const Item& other) const;

  void answer_by_length();
  void answer(const Group& group);
  void run(const Group& group);
  void prepare_inputs(const Group& group);
  void join(const Group& group, size_t spec, InputView& view);
  bool join_on_gpu(const Group& group, size_t spec, InputView& view);
  std::byte* copy_part(Item::Part& part, size_t spec, std::byte* to);
  void prepare_outputs(const Group& group);
  void place_early(Item& item, OutputView& view);
  void keep_on_gpu(OutputView& view, int64_t rows);
  Place place_in_response(Item& item, const TensorSpec& spec, const Shape& shape, size_t bytes,
                          TRITONSERVER_MemoryType memory) const;
  void put_rows(const OutputView& view, const Place& place);
  void respond_all(const Group& group);
  bool shape_is_known(size_t spec, int64_t rows, Shape* shape) const;
  void check_outputs(int64_t rows, int64_t batch);
  void respond(Item& item, int64_t first_row);
  void find_rows(const OutputView& view, int64_t first_row, const Item& item);
  void copy_rows(const OutputView& view, std::byte* to) const;
  void update_state(Item& item, const OutputView& view) const;
  void finish(const Group& group);
  void refuse(Item& item, const Error& error);
  void release(Item& item, bool answered, uint64_t end);

  TRITONBACKEND_ModelInstance* triton_;
  const Config& config_;
  Placement placement_;
  const bool outputs_on_gpu_;  // whether its answers are to stay there
  std::unique_ptr<Engine> engine_;
  mutable std::unique_ptr<cuda::Stream> stream_;  // for copies, since the first tensor that lay on a GPU
  std::vector<Shape> scalar_shapes_;              // by output: of rank 0 in the network, as configured
  std::vector<std::string> state_names_;          // by output: the state that it is, or empty
  std::vector<bool> shape_confirmed_;             // by output: a run gave the shape that the file promises
  std::vector<Place> placed_;                     // by output: its place in the only request's response, if it has one
  Padding padding_;
  std::vector<Item> items_;
  Group group_;
  Group part_;  // of a group whose lengths differ: those that run together
  std::vector<Lengths> lengths_;
  Splitter splitter_;
  int64_t longest_ = 0;  // of the run
  Rows rows_{};
  std::vector<InputView> input_views_;
  std::vector<OutputView> output_views_;
  std::vector<cuda::HostBuffer> joined_;           // by input
  std::vector<cuda::DeviceBuffer> joined_on_gpu_;  // likewise
  std::vector<cuda::DeviceBuffer> kept_on_gpu_;    // by output: of a batch, before each answer has its rows
  Buffer leaving_;                                 // rows on their way to GPU memory
  std::vector<std::vector<std::string_view>> joined_strings_;
  Times times_{};
};

}  // namespace tritonkit
