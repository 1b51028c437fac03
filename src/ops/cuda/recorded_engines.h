#pragma once
// cuDNN's answers about a GPU's engines, recorded for machines without that GPU (`share/engines/`). Each
// answer keeps only the engines that are the first choice under some limits (engine_choice.h), so that a
// choice from these engines is the same as from cuDNN's whole list. Questions that were not recorded have no
// answer, since workspaces cannot be extrapolated.
//
// The text contains each engine and each convolution once, and an answer once if it is the same for two
// types. So it has a sixth of the size that it would have if answers were written out.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

class RecordedEngines final : public EngineSource {
 public:
  // Asks `source` all `questions`. Exceptions of its list() are passed on.
  RecordedEngines(const EngineSource& source, std::span<const EngineQuestion> questions);
  // Reads the format of text(). Throws DataError for anything else.
  explicit RecordedEngines(std::string_view text);

  // For example "cudnn 9.19.0, recorded".
  std::string name() const override;
  // JSON (docs/engines.schema.json), one line per engine and per convolution, in the order of their texts.
  std::string text() const;

 private:
  // Throws NoEngine for a question that was not recorded.
  std::vector<Engine> do_list(const EngineQuestion& question) const override;

  std::string source_;
  std::map<QuestionTexts, std::vector<Engine>> answers_;
};

}  // namespace vdnn::cuda
