#include "onnxruntime/sessions.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <shared_mutex>

#include "onnxruntime/engines.h"
#include "onnxruntime/settings.h"

namespace tritonkit {
namespace {

using ort::api;

ort::Session* open(const Config& config, const ort::SessionOptions* options) {
  const std::filesystem::path path = model_file(config);
  ort::Session* session = nullptr;
  try {
    ort::check(api().create_session(ort::env(), path.c_str(), options, &session));
  } catch (const Error& error) {
    throw Error(text("ONNX Runtime cannot load ", path.string(), ": ", error.what()));
  }
  return session;
}

ort::OptionsPtr gpu_options(const Config& config, const Placement& placement, const CudaSettings& settings,
                            bool graphs) {
  // The work is the GPU's: threads for each core, ONNX Runtime's default, would be idle.
  ort::OptionsPtr options = session_options(config, std::max(1, threads_asked(config, kIntraOp)));
  append_cuda(options.get(), settings, placement.device, graphs);
  return options;
}

ort::Session* open_with_engines(const Config& config, const Placement& placement, const CudaSettings& settings,
                                const std::vector<ProviderOption>& further) {
  const ort::OptionsPtr options = session_options(config, std::max(1, threads_asked(config, kIntraOp)));
  append_tensorrt(options.get(), *settings.tensorrt, placement.device, further);
  append_cuda(options.get(), settings, placement.device, false);
  return open(config, options.get());
}

// A network that TensorRT runs in several parts has shapes between them, which no profile of its inputs names.
ort::Session* open_on_tensorrt(const Config& config, const Placement& placement, const CudaSettings& settings) {
  require_gpu();
  EngineFolder engines(config, *settings.tensorrt);
  const auto warn = [&](const std::string& why) {
    log(TRITONSERVER_LOG_WARN, text("model '", config.name,
                                    "': TensorRT builds an engine again, for seconds or minutes,"
                                    " whenever a request is smaller or larger than all before: ",
                                    why));
  };
  if (!settings.tensorrt->why_no_profiles.empty()) warn(settings.tensorrt->why_no_profiles);
  std::vector<ProviderOption> further = engines.options();
  const std::vector<ProviderOption> without = further;
  further.insert(further.end(), settings.tensorrt->profiles.begin(), settings.tensorrt->profiles.end());
  ort::Session* session = nullptr;
  try {
    session = open_with_engines(config, placement, settings, further);
  } catch (const Error& error) {
    if (!lacks_profiles(error)) throw;
    warn("the CUDA provider runs a part of the network between parts that TensorRT runs");
    session = open_with_engines(config, placement, settings, without);
  }
  engines.finish();
  return session;
}

}  // namespace

SharedSession open_session(const Config& config, int threads) {
  return ort::SessionPtr(open(config, session_options(config, threads).get()));
}

SharedSession open_on_gpu(const Config& config, const Placement& placement, const CudaSettings& settings, bool graphs) {
  const auto loading = cuda::while_loading();
  ort::Session* session = settings.tensorrt ? open_on_tensorrt(config, placement, settings)
                                            : open(config, gpu_options(config, placement, settings, graphs).get());
  return {session, [](ort::Session* opened) {
            const auto unloading = cuda::while_loading();
            api().release_session(opened);
          }};
}

// ONNX Runtime has no codes of its own for these two.
bool refuses_graphs(const Error& error) {
  return std::string_view(error.what()).find("cannot use the graph capture feature") != std::string_view::npos;
}

bool has_control_flow(const Error& error) {
  return std::string_view(error.what()).find("control flow nodes") != std::string_view::npos;
}

// Only the most detailed log has them, which a session that serves must not write: this one is thrown away.
std::string lacking_nodes(const Config& config, const Placement& placement, const CudaSettings& settings) {
  constexpr int kVerbose = 0;
  const auto loading = cuda::while_loading();
  const ort::OptionsPtr options = gpu_options(config, placement, settings, false);
  ort::check(api().set_session_severity(options.get(), kVerbose));
  const ort::Listener listener;
  const ort::SessionPtr session(open(config, options.get()));
  std::string nodes;
  bool is_elsewhere = false;
  for (const std::string& line : listener.lines()) {
    if (line.find(" placed on [") != std::string::npos) {
      is_elsewhere = line.find("[CUDAExecutionProvider]") == std::string::npos;
    } else if (is_elsewhere && !line.empty() && line.back() == ')') {
      nodes += text(nodes.empty() ? "" : ", ", line.substr(line.find_first_not_of(' ')));
    }
  }
  return nodes;
}

bool has_convolution(const Config& config) {
  // A node's op_type in the file's protobuf: field 4, its length, its text.
  constexpr std::string_view kConv =
      "\x22\x04"
      "Conv";
  constexpr std::string_view kTransposed =
      "\x22\x0d"
      "ConvTranspose";
  const std::string content = read_file(model_file(config));
  const std::boyer_moore_horspool_searcher conv(kConv.begin(), kConv.end());
  const std::boyer_moore_horspool_searcher transposed(kTransposed.begin(), kTransposed.end());
  return std::search(content.begin(), content.end(), conv) != content.end() ||
         std::search(content.begin(), content.end(), transposed) != content.end();
}

}  // namespace tritonkit
