#pragma once
// Sums over ranks: statistics of synchronised layers, metrics, and gradients. Gradients are summed in
// buckets. The sum of a bucket begins as soon as the backward pass has filled the bucket. Ranks may send
// gradients in a narrow type.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/network/lowering/lowering_state.h"

namespace vdnn::lowering {

// The state must outlive this object.
class Reductions {
 public:
  explicit Reductions(LoweringState& state) : state_(state) {}

  // Sums over all ranks the shares that the last op has made.
  void reduce_shares(std::uint32_t id, const OpRecipe& recipe);
  void reduce_metrics();
  // Adds the rank's own complete gradient of a parameter to the bucket.
  void add_gradient(std::uint32_t id, std::uint32_t parameter);
  // Sums the gradients in the bucket over all ranks.
  void reduce_bucket();
  // Returns the gradient for the update, in fp32. If ranks have summed it in a narrow type, converts the sum.
  ValueId wide_gradient(std::uint32_t id, std::size_t parameter);

 private:
  const TrainingOptions& options() const { return *state_.training; }
  std::string gradient_name(std::uint32_t id, std::size_t parameter) const;
  ValueId convert_gradient(std::uint32_t id, ValueId gradient, DataType type, const std::string& name);
  void narrow_gradient(std::uint32_t id, std::uint32_t parameter);

  LoweringState& state_;
  // Layer and parameter of each gradient that is not reduced yet.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> bucket_;
  std::uint64_t bucket_bytes_ = 0;
  std::uint32_t buckets_ = 0;  // number of reduced buckets
};

}  // namespace vdnn::lowering
