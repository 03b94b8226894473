// What runs a network. A backend is one implementation of Network and Engine.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config.h"
#include "cuda.h"
#include "tensor.h"

namespace tritonkit {

struct InputView {
  size_t spec = 0;  // place in Engine::inputs
  Shape shape;
  const std::byte* data = nullptr;
  size_t bytes = 0;
  bool on_gpu = false;                                     // where the data lie
  const std::vector<std::string_view>* strings = nullptr;  // instead of data, of type BYTES
};

struct OutputView {
  size_t spec = 0;            // place in Engine::outputs
  Shape shape;                // after the run
  std::byte* data = nullptr;  // before the run: where to write, or null; after it: where it lies
  bool in_place = false;      // whether it was given
  bool on_gpu = false;        // where that place is
  std::vector<std::string> strings;
};

class Engine {
 public:
  virtual ~Engine() = default;

  std::vector<TensorSpec> inputs;  // dims as the file says, the batch included
  size_t required = 0;             // the first ones of `inputs`; the others have a default
  std::vector<TensorSpec> outputs;
  bool writes_in_place = false;  // whether an OutputView may say where to write
  bool takes_gpu = false;        // whether both kinds of views may lie in the memory of the instance's GPU

  // The rows to give it for a batch: more than there are where the engine was compiled for fixed sizes.
  virtual int64_t rows_for(int64_t batch) const { return batch; }

  // Throws Error where the network cannot be run with these inputs. What the outputs point to stays until the
  // next run. Of an output in place the data are where it says when this returns.
  virtual void run(const std::vector<InputView>& inputs, std::vector<OutputView>& outputs) = 0;
};

// A model's network, read and held against its configuration; its instances share what they can.
class Network {
 public:
  virtual ~Network() = default;
  // For one instance. The network outlives it. Throws Error where it cannot run there.
  virtual std::unique_ptr<Engine> open_engine(const Placement& placement) = 0;
};

// What a backend library brings, beside `kBackend`; the first and last throw Error.
// Once for each server: loads the engine's library and tries it; gives its name and version. The settings are those of
// --backend-config.
std::string load_engine(const std::string& library, const Json& settings);
// Ends what it began, when no model is left.
void close_engine();
// Runs a small network on the first GPU; throws Error, which says why not.
void try_gpu();
std::unique_ptr<Network> open_network(const Config& config);

}  // namespace tritonkit
