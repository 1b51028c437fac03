#pragma once
// Data sets and the loader that turns them into batches ahead of time.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vdnn/device.h"
#include "vdnn/executor.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/tensor.h"

namespace vdnn {

// Samples of one split. Immutable after construction; read() may be called from any number of threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::uint64_t size() const = 0;
  // C, then space.
  virtual const Dims& sample_dims() const = 0;
  virtual std::int64_t classes() const = 0;
  // Writes sample `index`, normalised fp32, channels last (H, W, C), and its class in [0, classes).
  virtual void read(std::uint64_t index, std::span<float> image, std::int32_t& target) const = 0;
};

struct DatasetSplits {
  std::unique_ptr<Dataset> training;
  std::unique_ptr<Dataset> test;  // null: no evaluation
};

// `text`: `fashion-mnist[:DIR]` or `synthetic`. Synthetic samples have the given shape and classes and are a
// function of seed and index; of a data set with samples of its own, shape and classes must agree. Throws
// InvalidArgument (unknown name, a shape that does not fit, a data set that this version does not have) and
// DataError (missing, damaged, truncated: says which file and what was expected).
DatasetSplits open_dataset(const std::string& text, const Dims& sample_dims, std::int64_t classes,
                           std::uint64_t seed);

// Which samples make up which batch. Training: every epoch a fresh permutation by (seed, epoch); evaluation:
// in order. The last batch of an epoch may be short; its missing places are filled with zeros and target -1,
// which no loss counts.
struct BatchOrder {
  std::uint64_t samples = 0;
  std::int64_t batch = 0;
  bool shuffle = false;
  std::uint64_t seed = 0;

  std::uint64_t batches_per_epoch() const;
  // Indices of the samples of batch `number`, counted from the start of training: at most `batch`, at least
  // one.
  std::vector<std::uint64_t> indices(std::uint64_t number) const;
};

// One batch in page-locked memory.
struct StagedBatch {
  std::uint64_t number = 0;
  AddressRange images;        // batch x sample, fp32, channels last
  AddressRange targets;       // batch, i32
  std::uint32_t samples = 0;  // that count
  std::uint32_t slot = 0;     // the loader's own
};

// Loads and converts batches ahead on a thread of its own, into a ring of page-locked slots that it takes
// once. next() and recycle() belong to one thread. A failure in the thread surfaces at next().
class BatchLoader {
 public:
  // Batches `first` to `first + count - 1`. The data set must outlive the loader.
  BatchLoader(Device& device, PinnedPool& pool, const Dataset& data, BatchOrder order, std::uint64_t first,
              std::uint64_t count, std::uint32_t slots = kStagedBatches);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The next batch; blocks until it is converted. Throws InvalidArgument past the last one.
  StagedBatch next();
  // The batch's memory may be written again once `copied` is reached.
  void recycle(const StagedBatch& batch, const Frontier& copied);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
