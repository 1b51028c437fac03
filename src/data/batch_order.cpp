#include "src/data/batch_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/base/random.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

void check(const BatchOrder& order) {
  if (order.samples == 0) {
    throw InvalidArgument("batches of a data set without samples");
  }
  if (order.batch < 1) {
    throw InvalidArgument("batches of " + std::to_string(order.batch) + " samples: expected at least 1");
  }
  if (order.parts < 1 || order.batch % order.parts != 0) {
    throw InvalidArgument("batches of " + std::to_string(order.batch) + " samples in " +
                          std::to_string(order.parts) + " parts");
  }
  if (order.own_parts < 1 || order.own_parts > order.parts ||
      order.first_part > order.parts - order.own_parts) {
    throw InvalidArgument(std::to_string(order.own_parts) + " parts of a batch from part " +
                          std::to_string(order.first_part) + " on, of " + std::to_string(order.parts));
  }
}

// Shuffles with the Fisher-Yates algorithm in Durstenfeld's form.
void shuffle(std::span<std::uint64_t> samples, std::uint64_t seed) {
  SplitMix64 random(seed);
  for (std::size_t left = samples.size(); left > 1; --left) {
    std::swap(samples[left - 1], samples[random.below(left)]);
  }
}

// The samples of one epoch, in the order in which they fill the epoch's batches. In training every batch is
// full.
std::vector<std::uint64_t> epoch_of(const BatchOrder& order, std::uint64_t epoch) {
  std::vector<std::uint64_t> samples(order.samples);
  std::iota(samples.begin(), samples.end(), std::uint64_t{0});
  if (order.shuffle) {
    shuffle(samples, mix_seed(order.seed, epoch));
    samples.resize(checked_multiply(order.batches_per_epoch(), static_cast<std::uint64_t>(order.batch)));
    for (std::size_t i = order.samples; i < samples.size(); ++i) {
      samples[i] = samples[i - order.samples];
    }
  }
  return samples;
}

}  // namespace

std::uint64_t BatchOrder::batches_per_epoch() const {
  check(*this);
  const auto places = static_cast<std::uint64_t>(batch);
  return samples / places + (samples % places == 0 ? 0 : 1);
}

std::uint64_t BatchOrder::epoch(std::uint64_t number) const {
  return number / own_parts / batches_per_epoch();
}

std::vector<std::uint64_t> BatchOrder::indices(std::uint64_t number) const {
  BatchCursor cursor(*this);
  const std::span<const std::uint64_t> found = cursor.indices(number);
  return {found.begin(), found.end()};
}

BatchCursor::BatchCursor(const BatchOrder& order) : order_(order) {
  check(order_);
}

std::span<const std::uint64_t> BatchCursor::indices(std::uint64_t number) {
  const std::uint64_t epoch = order_.epoch(number);
  if (epoch_ != epoch) {
    samples_ = epoch_of(order_, epoch);
    epoch_ = epoch;
  }
  const std::uint64_t batch = number / order_.own_parts % order_.batches_per_epoch();
  const std::uint64_t part = order_.first_part + number % order_.own_parts;
  const auto places = static_cast<std::uint64_t>(order_.part());
  const std::uint64_t begin =
      std::min(batch * static_cast<std::uint64_t>(order_.batch) + part * places, samples_.size());
  return std::span(samples_).subspan(begin, std::min(places, samples_.size() - begin));
}

}  // namespace vdnn
