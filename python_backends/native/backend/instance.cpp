#include "instance.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>

namespace tritonkit {
namespace {

uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

size_t place_of(const std::vector<TensorSpec>& specs, std::string_view name) {
  auto found = std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& spec) { return spec.name == name; });
  return static_cast<size_t>(found - specs.begin());
}

// "model 'm', input 'x': ..." or "model 'm': ...".
std::string in_model(const std::string& model, std::string_view reason) {
  bool names_tensor = reason.substr(0, 7) == "input '" || reason.substr(0, 8) == "output '";
  return text("model '", model, names_tensor ? "', " : "': ", reason);
}

bool is_aligned(const std::byte* data, size_t size) { return reinterpret_cast<uintptr_t>(data) % size == 0; }

// What vector instructions of the engines may expect of memory that they write to; a place in a region of shared memory
// may be anywhere.
constexpr size_t kInPlaceAlignment = 16;

// In positions: to start a run takes a GPU as long as to compute thousands of them.
constexpr int64_t kRunCostOnGpu = 4096;

// Answers lie in the host's memory, where every caller can read them: Python models that call this one read them as
// arrays. The next model of an ensemble may want them on the GPU.
bool stays_on_gpu(const Config& config, const Placement& placement) {
  constexpr const char* kKey = "tritonkit.output_memory";
  const std::string& found = config.parameter(kKey);
  if (!found.empty() && found != "cpu" && found != "gpu") {
    throw Error(text("parameter ", kKey, ": found '", found, "', wanted cpu or gpu"));
  }
  return placement.gpu && found == "gpu";
}

// Why it failed.
template <typename Work>
std::optional<Error> failure_of(Work work) noexcept {
  try {
    work();
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {  // no memory
    return Error(error.what(), TRITONSERVER_ERROR_INTERNAL);
  }
  return std::nullopt;
}

}  // namespace

Instance::Instance(TRITONBACKEND_ModelInstance* triton, const Config& config, std::unique_ptr<Engine> engine,
                   const Placement& placement)
    : triton_(triton),
      config_(config),
      placement_(placement),
      outputs_on_gpu_(stays_on_gpu(config, placement)),
      engine_(std::move(engine)),
      splitter_(placement.gpu ? kRunCostOnGpu : Splitter::kRunCost) {
  size_t outputs = engine_->outputs.size();
  scalar_shapes_.resize(outputs);
  state_names_.resize(outputs);
  shape_confirmed_.resize(outputs);
  placed_.resize(outputs);
  joined_.resize(engine_->inputs.size());
  joined_on_gpu_.resize(engine_->inputs.size());
  kept_on_gpu_.resize(outputs);
  joined_strings_.resize(engine_->inputs.size());
  for (const ConfiguredTensor& output : config.outputs) {
    size_t place = place_of(engine_->outputs, output.spec.name);
    if (place < outputs && engine_->outputs[place].dims.empty()) scalar_shapes_[place] = output.spec.dims;
  }
  for (const ConfiguredState& state : config.states) {
    size_t place = place_of(engine_->outputs, state.output);
    if (place == outputs) {
      throw Error(text("sequence_batching.state '", state.output,
                       "' is in config.pbtxt and not in the model, which has ", names_of(engine_->outputs)));
    }
    state_names_[place] = state.output;
  }
  check_axes();
  padding_ = read_padding(config, engine_->inputs, engine_->outputs);
}

// Of the inputs that the configuration's `input` does not name: states and controls.
void Instance::check_axes() const {
  if (!config_.batched()) return;
  for (size_t place = 0; place < engine_->required; ++place) {
    const TensorSpec& spec = engine_->inputs[place];
    if (spec.dims.empty()) {
      throw Error(
          text("input '", spec.name, "': max_batch_size is above 0, so it needs a first axis; the model has none"));
    }
  }
}

void Instance::reserve(uint32_t count) {
  if (items_.size() < count) items_.resize(count);
  group_.reserve(count);
  if (padding_.empty()) return;
  part_.reserve(count);
  lengths_.reserve(count);
  splitter_.reserve(count);
}

void Instance::execute(TRITONBACKEND_Request** requests, uint32_t count) noexcept {
  times_.start = now_ns();
  for (uint32_t place = 0; place < count; ++place) {
    Item& item = items_[place];
    item.request = requests[place];
    item.response = nullptr;
    item.error.reset();
    item.grouped = false;
    if (std::optional<Error> failed = failure_of([&] { read(item); })) refuse(item, *failed);
  }
  for (uint32_t first = 0; first < count; ++first) {
    if (items_[first].grouped) continue;
    group_.clear();
    for (uint32_t place = first; place < count; ++place) {
      Item& item = items_[place];
      if (item.grouped || (place != first && !alike(items_[first], item))) continue;
      item.grouped = true;
      group_.push_back(&item);
    }
    if (padding_.empty() || group_.size() == 1) {
      answer(group_);
    } else {
      answer_by_length();
    }
  }
}

// --- what a request asks ---

void Instance::read(Item& item) const {
  bool cancelled = false;
  check(TRITONBACKEND_RequestIsCancelled(item.request, &cancelled));
  if (cancelled) throw Error("the request was cancelled before it ran", TRITONSERVER_ERROR_CANCELLED);
  item.parts.resize(engine_->inputs.size());
  for (Item::Part& part : item.parts) part.present = false;
  uint32_t count = 0;
  check(TRITONBACKEND_RequestInputCount(item.request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    TRITONBACKEND_Input* input = nullptr;
    check(TRITONBACKEND_RequestInputByIndex(item.request, index, &input));
    read_part(item, input);
  }
  item.batch = -1;
  for (size_t spec = 0; spec < item.parts.size(); ++spec) {
    const Item::Part& part = item.parts[spec];
    if (!part.present) {
      if (spec >= engine_->required) continue;
      throw Error(text("input '", engine_->inputs[spec].name, "' is missing"));
    }
    if (!config_.batched()) continue;
    if (item.batch >= 0 && part.shape[0] != item.batch) throw Error("inputs differ in batch size");
    item.batch = part.shape[0];
  }
  if (item.batch > config_.max_batch && config_.batched()) {
    throw Error(text("found a batch of ", item.batch, ", wanted at most ", config_.max_batch));
  }
  if (item.batch < 0) item.batch = 1;
  read_length(item);
  item.wanted.assign(engine_->outputs.size(), false);
  check(TRITONBACKEND_RequestOutputCount(item.request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char* name = nullptr;
    check(TRITONBACKEND_RequestOutputName(item.request, index, &name));
    size_t place = place_of(engine_->outputs, name);
    if (place < item.wanted.size()) item.wanted[place] = true;
  }
}

void Instance::read_part(Item& item, TRITONBACKEND_Input* input) const {
  const char* name = nullptr;
  const int64_t* dims = nullptr;
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  uint32_t rank = 0, buffers = 0;
  uint64_t bytes = 0;
  check(TRITONBACKEND_InputProperties(input, &name, &type, &dims, &rank, &bytes, &buffers));
  size_t place = place_of(engine_->inputs, name);
  if (place == engine_->inputs.size()) {
    throw Error(text("input '", name, "' is not the model's; it has ", names_of(engine_->inputs)));
  }
  const TensorSpec& spec = engine_->inputs[place];
  Item::Part& part = item.parts[place];
  part.present = true;
  part.shape.assign(dims, dims + rank);
  part.bytes = bytes;
  std::optional<Error> failed = failure_of([&] {
    if (type != spec.type) throw Error(text("found ", type_name(type), ", wanted ", type_name(spec.type)));
    const bool can_stay = read_buffers(part, input, buffers) && engine_->takes_gpu && padding_.empty();
    if (part.on_gpu && !(can_stay && spec.type != TRITONSERVER_TYPE_BYTES)) fetch(part);
    fit(part, spec);
    if (spec.type == TRITONSERVER_TYPE_BYTES) return read_strings(part);
    size_t wanted = bytes_of(spec.type, part.shape);
    if (bytes != wanted) throw Error(text("found ", bytes, " bytes, wanted ", wanted));
  });
  if (failed) throw Error(text("input '", name, "': ", failed->what()), failed->code());
}

// Whether all of it that lies in a GPU's memory lies in that of this instance.
bool Instance::read_buffers(Item::Part& part, TRITONBACKEND_Input* input, uint32_t buffers) const {
  size_t found = 0;
  bool is_near = true;
  part.buffers.clear();
  part.on_gpu = false;
  for (uint32_t index = 0; index < buffers; ++index) {
    const void* data = nullptr;
    uint64_t size = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t device = 0;
    check(TRITONBACKEND_InputBuffer(input, index, &data, &size, &memory, &device));
    if (memory == TRITONSERVER_MEMORY_GPU && size > 0) {
      part.on_gpu = true;
      is_near = is_near && device == placement_.device;
    }
    if (size > 0) part.buffers.emplace_back(static_cast<const std::byte*>(data), size);
    found += size;
  }
  // Triton adds an offset into shared memory to a size without looking for an overflow.
  if (part.bytes > static_cast<size_t>(PTRDIFF_MAX))
    throw Error(text("found ", part.bytes, " bytes, which no tensor has"));
  if (found != part.bytes) throw Error(text("found ", found, " bytes, ", part.bytes, " announced"));
  return is_near;
}

const cuda::Stream& Instance::stream() const {
  if (stream_ == nullptr) stream_ = std::make_unique<cuda::Stream>(placement_.device);
  return *stream_;
}

// From GPU memory into the host's.
void Instance::fetch(Item::Part& part) const {
  std::byte* to = part.copy.resize(part.bytes);
  size_t at = 0;
  for (const auto& [from, size] : part.buffers) {
    stream().copy(from, size, to + at);
    at += size;
  }
  stream().wait();
  part.buffers.clear();
  if (at > 0) part.buffers.emplace_back(to, at);
  part.on_gpu = false;
}

void Instance::fit(Item::Part& part, const TensorSpec& spec) const {
  int64_t count = element_count(part.shape);  // of a shape that can be
  if (spec.dims.empty() && count == 1) part.shape.clear();
  bool fits = part.shape.size() == spec.dims.size() &&
              std::equal(part.shape.begin(), part.shape.end(), spec.dims.begin(),
                         [](int64_t have, int64_t want) { return want == -1 || have == want; });
  if (!fits) {
    throw Error(text("found shape ", to_text(part.shape), ", wanted ", to_text(spec.dims),
                     " (-1 is any size, the batch included)"));
  }
}

// Each element is its length in four bytes, little-endian, and its bytes.
void Instance::read_strings(Item::Part& part) const {
  const std::byte* data = part.buffers.empty() ? nullptr : part.buffers[0].first;
  if (part.buffers.size() > 1) {
    std::byte* to = part.copy.resize(part.bytes);
    data = to;
    for (const auto& [from, size] : part.buffers) to = std::copy_n(from, size, to);
  }
  part.strings.clear();
  size_t at = 0;
  int64_t count = element_count(part.shape);
  for (int64_t element = 0; element < count; ++element) {
    uint32_t length = 0;
    if (part.bytes - at < sizeof length) throw Error(text("ends before element ", element));
    std::memcpy(&length, data + at, sizeof length);
    at += sizeof length;
    if (part.bytes - at < length) throw Error(text("element ", element, " is longer than what is left"));
    std::string_view found(reinterpret_cast<const char*>(data + at), length);
    size_t wrong = 0;
    if (!is_utf8(found, &wrong)) throw Error(text("element ", element, " is not valid UTF-8 at byte ", wrong));
    part.strings.push_back(found);
    at += length;
  }
  if (at != part.bytes) throw Error(text("has ", part.bytes - at, " bytes after its last element"));
}

void Instance::read_length(Item& item) const {
  item.length = 0;
  for (size_t spec = 0; spec < padding_.inputs.size(); ++spec) {
    if (!padding_.inputs[spec].is_padded() || !item.parts[spec].present) continue;
    int64_t found = item.parts[spec].shape[padding_.inputs[spec].axis];
    if (item.length != 0 && found != item.length) {
      throw Error(text("input '", engine_->inputs[spec].name, "': found length ", found, ", wanted ", item.length,
                       ", that of the inputs before"));
    }
    item.length = found;
  }
}

// But for the axes that are padded.
bool Instance::alike(const Item& one, const Item& other) const {
  if (!config_.batched()) return false;
  for (size_t spec = 0; spec < one.parts.size(); ++spec) {
    const Item::Part &a = one.parts[spec], &b = other.parts[spec];
    if (a.present != b.present) return false;
    if (!a.present) continue;
    if (a.shape.size() != b.shape.size()) return false;
    const size_t padded = padding_.empty() ? 0 : padding_.inputs[spec].axis;
    for (size_t axis = 1; axis < a.shape.size(); ++axis) {
      if (axis != padded && a.shape[axis] != b.shape[axis]) return false;
    }
  }
  return true;
}

// --- the run ---

void Instance::answer_by_length() {
  // Longest first, else in the order in which they came: items_ lie in it.
  std::sort(group_.begin(), group_.end(), [](const Item* one, const Item* other) {
    return one->length != other->length ? one->length > other->length : one < other;
  });
  lengths_.clear();
  for (const Item* item : group_) lengths_.push_back({item->length, item->batch});
  const std::vector<size_t>& firsts = splitter_.split(lengths_, padding_.most);
  for (size_t run = 0; run < firsts.size(); ++run) {
    size_t end = run + 1 < firsts.size() ? firsts[run + 1] : group_.size();
    part_.assign(group_.begin() + static_cast<ptrdiff_t>(firsts[run]), group_.begin() + static_cast<ptrdiff_t>(end));
    answer(part_);
  }
}

void Instance::answer(const Group& group) {
  std::optional<Error> failed = failure_of([&] { run(group); });
  if (!failed) return finish(group);
  if (group.size() == 1) return refuse(*group[0], *failed);
  // One of them is to blame: each alone shows which.
  for (Item* item : group) answer({item});
}

void Instance::run(const Group& group) {
  prepare_inputs(group);
  prepare_outputs(group);
  times_.compute_start = now_ns();
  engine_->run(input_views_, output_views_);
  times_.compute_end = now_ns();
  int64_t batch = 0;
  for (const Item* item : group) batch += item->batch;
  check_outputs(config_.batched() ? engine_->rows_for(batch) : batch, batch);
  respond_all(group);
}

void Instance::prepare_inputs(const Group& group) {
  int64_t batch = 0;
  for (const Item* item : group) batch += item->batch;
  int64_t rows = config_.batched() ? engine_->rows_for(batch) : batch;
  longest_ = 0;
  for (const Item* item : group) longest_ = std::max(longest_, item->length);
  size_t used = 0;
  for (size_t spec = 0; spec < engine_->inputs.size(); ++spec) {
    if (!group[0]->parts[spec].present) continue;
    if (input_views_.size() == used) input_views_.emplace_back();
    InputView& view = input_views_[used++];
    const Item::Part& part = group[0]->parts[spec];
    view.spec = spec;
    view.shape = part.shape;
    view.strings = nullptr;
    view.on_gpu = false;
    if (config_.batched()) view.shape[0] = rows;
    if (!padding_.empty() && padding_.inputs[spec].is_padded()) view.shape[padding_.inputs[spec].axis] = longest_;
    TRITONSERVER_DataType type = engine_->inputs[spec].type;
    bool as_it_is = group.size() == 1 && rows == batch;
    if (as_it_is && type == TRITONSERVER_TYPE_BYTES) {
      view.strings = &part.strings;
    } else if (as_it_is && part.buffers.size() == 1 && is_aligned(part.buffers[0].first, element_size(type))) {
      view.data = part.buffers[0].first;
      view.bytes = part.bytes;
      view.on_gpu = part.on_gpu;
    } else {
      join(group, spec, view);
    }
  }
  input_views_.resize(used);
}

void Instance::join(const Group& group, size_t spec, InputView& view) {
  if (engine_->inputs[spec].type == TRITONSERVER_TYPE_BYTES) {
    std::vector<std::string_view>& strings = joined_strings_[spec];
    strings.clear();
    for (const Item* item : group) {
      const auto& part = item->parts[spec].strings;
      strings.insert(strings.end(), part.begin(), part.end());
    }
    strings.resize(static_cast<size_t>(element_count(view.shape)));
    view.strings = &strings;
    return;
  }
  view.bytes = bytes_of(engine_->inputs[spec].type, view.shape);
  if (join_on_gpu(group, spec, view)) return;
  std::byte* to = joined_[spec].resize(view.bytes, placement_);
  std::byte* end = to + view.bytes;
  view.data = to;
  for (Item* item : group) to = copy_part(item->parts[spec], spec, to);
  // Nothing of an earlier request: scales may span the batch.
  std::fill(to, end, std::byte{0});
}

// Where all of it lies there already; else all of it is fetched.
bool Instance::join_on_gpu(const Group& group, size_t spec, InputView& view) {
  const bool all = view.bytes > 0 &&
                   std::all_of(group.begin(), group.end(), [&](const Item* item) { return item->parts[spec].on_gpu; });
  if (!all) {
    for (Item* item : group) {
      if (item->parts[spec].on_gpu) fetch(item->parts[spec]);
    }
    return false;
  }
  std::byte* to = joined_on_gpu_[spec].resize(view.bytes, placement_.device);
  std::byte* end = to + view.bytes;
  view.data = to;
  view.on_gpu = true;
  for (const Item* item : group) {
    for (const auto& [from, size] : item->parts[spec].buffers) {
      stream().copy(from, size, to);
      to += size;
    }
  }
  if (to != end) stream().clear(to, static_cast<size_t>(end - to));
  stream().wait();
  return true;
}

// Gives the place behind it.
std::byte* Instance::copy_part(Item::Part& part, size_t spec, std::byte* to) {
  const size_t axis = padding_.empty() ? 0 : padding_.inputs[spec].axis;
  if (axis == 0 || part.shape[axis] == longest_) {
    for (const auto& [from, size] : part.buffers) to = std::copy_n(from, size, to);
    return to;
  }
  const std::byte* from = part.buffers.empty() ? nullptr : part.buffers[0].first;
  if (part.buffers.size() > 1) {
    std::byte* gathered = part.copy.resize(part.bytes);
    from = gathered;
    for (const auto& [piece, size] : part.buffers) gathered = std::copy_n(piece, size, gathered);
  }
  const Blocks blocks = blocks_of(part.shape, axis, element_size(engine_->inputs[spec].type));
  return pad(from, blocks, static_cast<size_t>(longest_), padding_.inputs[spec].value, to);
}

void Instance::prepare_outputs(const Group& group) {
  int64_t batch = 0;
  for (const Item* item : group) batch += item->batch;
  size_t used = 0;
  for (size_t spec = 0; spec < engine_->outputs.size(); ++spec) {
    bool wanted = !state_names_[spec].empty() ||
                  std::any_of(group.begin(), group.end(), [&](const Item* item) { return item->wanted[spec]; });
    if (!wanted) continue;
    if (output_views_.size() == used) output_views_.emplace_back();
    OutputView& view = output_views_[used++];
    view.spec = spec;
    view.data = nullptr;
    view.in_place = false;
    view.on_gpu = false;
    view.strings.clear();
    placed_[spec] = {};
    if (group.size() == 1 && group[0]->wanted[spec]) place_early(*group[0], view);
    if (outputs_on_gpu_) keep_on_gpu(view, config_.batched() ? engine_->rows_for(batch) : batch);
  }
  output_views_.resize(used);
}

// Asks Triton for an output's place before the run, for the engine to write to.
void Instance::place_early(Item& item, OutputView& view) {
  size_t spec = view.spec;
  if (!engine_->writes_in_place || !shape_confirmed_[spec] || !state_names_[spec].empty()) return;
  if (config_.batched() && engine_->rows_for(item.batch) != item.batch) return;
  if (!shape_is_known(spec, item.batch, &view.shape)) return;
  size_t bytes = bytes_of(engine_->outputs[spec].type, view.shape);
  if (bytes == 0) return;  // has no place
  const auto memory = outputs_on_gpu_ ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU;
  placed_[spec] = place_in_response(item, engine_->outputs[spec], view.shape, bytes, memory);
  if (!is_aligned(placed_[spec].data, kInPlaceAlignment)) return;
  if (placed_[spec].on_gpu && !(engine_->takes_gpu && placed_[spec].is_near)) return;
  view.in_place = true;
  view.on_gpu = placed_[spec].on_gpu;
  view.data = placed_[spec].data;
}

// Of an output without a place of its own, such as that of a batch: the run leaves it there for respond().
void Instance::keep_on_gpu(OutputView& view, int64_t rows) {
  const size_t spec = view.spec;
  if (placed_[spec].data != nullptr || !padding_.empty() || !state_names_[spec].empty() || !shape_confirmed_[spec]) {
    return;
  }
  if (!shape_is_known(spec, rows, &view.shape)) return;
  const size_t bytes = bytes_of(engine_->outputs[spec].type, view.shape);
  if (bytes == 0) return;
  view.data = kept_on_gpu_[spec].resize(bytes, placement_.device);
  view.in_place = true;
  view.on_gpu = true;
}

bool Instance::shape_is_known(size_t spec, int64_t rows, Shape* shape) const {
  const TensorSpec& output = engine_->outputs[spec];
  if (output.type == TRITONSERVER_TYPE_BYTES || output.dims.empty()) return false;
  *shape = output.dims;
  if (config_.batched()) shape->front() = rows;
  return std::all_of(shape->begin(), shape->end(), [](int64_t size) { return size >= 0; });
}

// An output is what the file says it is, for clients go by that. Before outputs are written in place the network must
// have kept this promise once.
void Instance::check_outputs(int64_t rows, int64_t batch) {
  for (OutputView& view : output_views_) {
    const TensorSpec& spec = engine_->outputs[view.spec];
    if (config_.batched() && (view.shape.empty() || view.shape[0] != rows)) {
      throw Error(text("output '", spec.name, "': found shape ", to_text(view.shape), ", wanted ", batch,
                       " on its first axis, the batch"));
    }
    bool as_said = spec.dims.empty() ||  // the file says nothing
                   std::equal(spec.dims.begin(), spec.dims.end(), view.shape.begin(), view.shape.end(),
                              [](int64_t said, int64_t found) { return said < 0 || said == found; });
    if (!as_said) {
      throw Error(text("output '", spec.name, "': found shape ", to_text(view.shape), ", the model's file says ",
                       to_text(spec.dims)));
    }
    const size_t padded = padding_.empty() ? 0 : padding_.outputs[view.spec].axis;
    if (padded != 0 && (view.shape.size() <= padded || view.shape[padded] != longest_)) {
      throw Error(text("output '", spec.name, "': found shape ", to_text(view.shape), ", wanted ", longest_,
                       " on axis ", padded, ", as the inputs have (parameter tritonkit.pad)"));
    }
    shape_confirmed_[view.spec] = true;
    if (view.shape.empty()) view.shape = scalar_shapes_[view.spec];
  }
}

// --- the answers ---

// The memory is what suits the instance; a region of shared memory is where it is.
Instance::Place Instance::place_in_response(Item& item, const TensorSpec& spec, const Shape& shape, size_t bytes,
                                            TRITONSERVER_MemoryType memory) const {
  if (item.response == nullptr) check(TRITONBACKEND_ResponseNew(&item.response, item.request));
  TRITONBACKEND_Output* output = nullptr;
  check(TRITONBACKEND_ResponseOutput(item.response, &output, spec.name.c_str(), spec.type, shape.data(),
                                     static_cast<uint32_t>(shape.size())));
  void* place = nullptr;
  int64_t device = memory == TRITONSERVER_MEMORY_GPU ? placement_.device : 0;
  check(TRITONBACKEND_OutputBuffer(output, &place, bytes, &memory, &device));
  const bool on_gpu = memory == TRITONSERVER_MEMORY_GPU;
  return {static_cast<std::byte*>(place), on_gpu, on_gpu && device == placement_.device};
}

// Of rows that are on the GPU the copy is done when respond_all() returns.
void Instance::put_rows(const OutputView& view, const Place& place) {
  if (view.on_gpu) {
    const std::byte* rows = view.data + rows_.first * element_size(engine_->outputs[view.spec].type);
    return stream().copy(rows, rows_.bytes, place.data);
  }
  if (!place.on_gpu) return copy_rows(view, place.data);
  if (rows_.bytes == 0) return;
  std::byte* rows = leaving_.resize(rows_.bytes);
  copy_rows(view, rows);
  stream().copy(rows, rows_.bytes, place.data);
  stream().wait();
}

void Instance::respond_all(const Group& group) {
  int64_t row = 0;
  for (Item* item : group) {
    item->error = failure_of([&] { respond(*item, row); });
    row += item->batch;
  }
  if (!outputs_on_gpu_) return;
  const std::optional<Error> failed = failure_of([&] { stream().wait(); });
  for (Item* item : group) {
    if (!item->error) item->error = failed;
  }
}

void Instance::respond(Item& item, int64_t first_row) {
  if (item.response == nullptr) check(TRITONBACKEND_ResponseNew(&item.response, item.request));
  for (const OutputView& view : output_views_) {
    Place place = placed_[view.spec];
    if (!item.wanted[view.spec] || (view.in_place && place.data != nullptr)) continue;
    find_rows(view, first_row, item);
    if (place.data == nullptr) {
      const auto memory = view.on_gpu ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU;
      place = place_in_response(item, engine_->outputs[view.spec], rows_.shape, rows_.bytes, memory);
    }
    put_rows(view, place);
  }
  // A sequence goes on from a step that was answered, not from one that failed.
  for (const OutputView& view : output_views_) {
    if (state_names_[view.spec].empty()) continue;
    find_rows(view, first_row, item);
    update_state(item, view);
  }
}

void Instance::find_rows(const OutputView& view, int64_t first_row, const Item& item) {
  Rows& rows = rows_;
  rows.padded = view.shape;
  if (config_.batched()) rows.padded[0] = item.batch;
  rows.shape = rows.padded;
  const auto elements = static_cast<size_t>(element_count(rows.padded));
  rows.first = config_.batched() && item.batch > 0
                   ? elements / static_cast<size_t>(item.batch) * static_cast<size_t>(first_row)
                   : 0;
  if (!padding_.empty() && padding_.outputs[view.spec].is_padded()) {
    rows.shape[padding_.outputs[view.spec].axis] = item.length;
  }
  rows.count = static_cast<size_t>(element_count(rows.shape));
  TRITONSERVER_DataType type = engine_->outputs[view.spec].type;
  rows.bytes = rows.count * element_size(type);
  if (type == TRITONSERVER_TYPE_BYTES) {
    for (size_t element = rows.first; element < rows.first + rows.count; ++element) {
      rows.bytes += sizeof(uint32_t) + view.strings[element].size();
    }
  }
}

void Instance::copy_rows(const OutputView& view, std::byte* to) const {
  size_t size = element_size(engine_->outputs[view.spec].type);
  if (rows_.bytes == 0) return;  // neither may point to anything
  if (size != 0 && rows_.shape != rows_.padded) {
    const size_t axis = padding_.outputs[view.spec].axis;
    cut(view.data + rows_.first * size, blocks_of(rows_.padded, axis, size), static_cast<size_t>(rows_.shape[axis]),
        to);
    return;
  }
  if (size != 0) {
    std::copy_n(view.data + rows_.first * size, rows_.bytes, to);
    return;
  }
  for (size_t element = rows_.first; element < rows_.first + rows_.count; ++element) {
    const std::string& value = view.strings[element];
    const auto length = static_cast<uint32_t>(value.size());
    std::memcpy(to, &length, sizeof length);
    std::memcpy(to + sizeof length, value.data(), length);
    to += sizeof length + length;
  }
}

// Triton keeps it for the next request of the sequence.
void Instance::update_state(Item& item, const OutputView& view) const {
  TRITONBACKEND_State* state = nullptr;
  check(TRITONBACKEND_StateNew(&state, item.request, state_names_[view.spec].c_str(), engine_->outputs[view.spec].type,
                               rows_.shape.data(), static_cast<uint32_t>(rows_.shape.size())));
  void* place = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  check(TRITONBACKEND_StateBuffer(state, &place, rows_.bytes, &memory, &device));
  if (memory == TRITONSERVER_MEMORY_GPU) throw Error("a state lies in GPU memory, which this backend cannot write");
  copy_rows(view, static_cast<std::byte*>(place));
  check(TRITONBACKEND_StateUpdate(state));
}

void Instance::finish(const Group& group) {
  uint64_t end = now_ns();
  uint64_t batch = 0;
  for (Item* item : group) {
    batch += static_cast<uint64_t>(item->batch);
    if (item->error) {
      refuse(*item, *item->error);
      continue;
    }
    log_failure(TRITONBACKEND_ResponseSend(item->response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, nullptr));
    release(*item, true, end);
  }
  log_failure(TRITONBACKEND_ModelInstanceReportBatchStatistics(triton_, batch, times_.start, times_.compute_start,
                                                               times_.compute_end, end));
  times_.start = end;  // of the next group, if there is one
}

void Instance::refuse(Item& item, const Error& error) {
  // What was begun of its answer is thrown away.
  if (item.response != nullptr) log_failure(TRITONBACKEND_ResponseDelete(item.response));
  item.response = nullptr;
  TRITONSERVER_Error* failed = Error(in_model(config_.name, error.what()), error.code()).to_triton();
  TRITONSERVER_Error* not_made = TRITONBACKEND_ResponseNew(&item.response, item.request);
  if (not_made == nullptr) {
    log_failure(TRITONBACKEND_ResponseSend(item.response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, failed));
  }
  log_failure(not_made);
  TRITONSERVER_ErrorDelete(failed);
  item.grouped = true;
  uint64_t end = now_ns();
  release(item, false, end);
}

void Instance::release(Item& item, bool answered, uint64_t end) {
  uint64_t compute_start = std::max(times_.compute_start, times_.start);
  uint64_t compute_end = std::max(times_.compute_end, compute_start);
  log_failure(TRITONBACKEND_ModelInstanceReportStatistics(triton_, item.request, answered, times_.start, compute_start,
                                                          compute_end, std::max(end, compute_end)));
  log_failure(TRITONBACKEND_RequestRelease(item.request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

}  // namespace tritonkit
