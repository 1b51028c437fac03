#pragma once
// Sums over ranks: statistics of synchronised layers, metrics, and gradients. Gradients are summed in
// buckets, each as soon as the backward pass has made the bytes of one. They may be sent in a narrow type.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/network/lowering/lowering_state.h"

namespace vdnn::lowering {

// The state outlives it.
class Reductions {
 public:
  explicit Reductions(LoweringState& state) : state_(state) {}

  // Sums over ranks the values that the last op has made shares of.
  void reduce_shares(std::uint32_t id, const OpRecipe& recipe);
  void reduce_metrics();
  // The rank's own gradient of a parameter is complete: it joins the bucket.
  void add_gradient(std::uint32_t id, std::uint32_t parameter);
  // The bucket so far.
  void reduce_bucket();
  // The gradient for the update, in fp32. A sum that ranks made in a narrow type is converted here.
  ValueId wide_gradient(std::uint32_t id, std::size_t parameter);

 private:
  const TrainingOptions& options() const { return *state_.training; }
  std::string gradient_name(std::uint32_t id, std::size_t parameter) const;
  ValueId convert_gradient(std::uint32_t id, ValueId gradient, DataType type, const std::string& name);
  void narrow_gradient(std::uint32_t id, std::uint32_t parameter);

  LoweringState& state_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> bucket_;  // layer, parameter: not reduced yet
  std::uint64_t bucket_bytes_ = 0;
  std::uint32_t buckets_ = 0;  // that were reduced
};

}  // namespace vdnn::lowering
