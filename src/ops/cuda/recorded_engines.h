#pragma once
// What cuDNN said of a GPU's engines, written down for machines that do not have it (`share/engines/`). Of
// each answer only the engines that some limits make the choice are kept (engine_choice.h), so that choices
// are those that cuDNN's whole list leads to. A question that nobody asked then has no answer here:
// workspaces are not extrapolated.
//
// The text names each engine once, and each convolution; an answer that is the same for two types is there
// once. Together that is a sixth of what answers take that are written out.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

class RecordedEngines final : public EngineSource {
 public:
  // Asks `source` all `questions`. Throws what its list() throws.
  RecordedEngines(const EngineSource& source, std::span<const EngineQuestion> questions);
  // What text() wrote. Throws DataError where it is something else.
  explicit RecordedEngines(std::string_view text);

  // "cudnn 9.19.0, recorded"
  std::string name() const override;
  // JSON (docs/engines.schema.json), one line per engine and per convolution, in the order of their texts.
  std::string text() const;

 private:
  // Throws NoEngine for a question that was not asked.
  std::vector<Engine> do_list(const EngineQuestion& question) const override;

  std::string source_;
  std::map<QuestionTexts, std::vector<Engine>> answers_;
};

}  // namespace vdnn::cuda
