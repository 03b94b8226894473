// What a model's configuration asks of OpenVINO.
//
// Source of every rule: README.md, `src/openvino.cc` (ParseParameters, ValidateInputs, ValidateOutputs) and
// `src/openvino_utils.cc` (CompareDimsSupported) of triton-inference-server/openvino_backend. A configuration that it
// refuses is refused here too; parameters it does not know it passes over, and so does this.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config.h"

namespace tritonkit::ov {

using Properties = std::map<std::string, std::string>;

std::filesystem::path model_file(const Config& config);
void check_device(const Config& config);
// A switch: any other text than YES is no.
bool is_yes(const Config& config, const std::string& key);
// Whether batches below `max_batch_size` are answered; they fail else.
bool pads_batches(const Config& config);
// Sizes to compile for: one item, each preferred batch, the largest; none without a batch.
std::vector<int64_t> batch_sizes(const Config& config);
Properties properties(const Config& config, const std::filesystem::path& file);
// Those of a run that is alone: one stream with all threads that it may take. Empty where it would have no more of
// them.
Properties properties_alone(const Config& config, const Properties& usual);

}  // namespace tritonkit::ov
