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

// Which sample, and in which pass over the data: augmentation shows another view of a sample in every epoch.
struct SampleKey {
  std::uint64_t index = 0;
  std::uint64_t epoch = 0;
};

// Samples of one split. Immutable after construction; read() may be called from any number of threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::uint64_t size() const = 0;
  // C, then space.
  virtual const Dims& sample_dims() const = 0;
  // Empty: one class a sample. Else the space of a label map, with a class at each place.
  virtual const Dims& target_dims() const = 0;
  virtual std::int64_t classes() const = 0;
  // Writes a sample, normalised fp32, channels last (H, W, C), and its classes in [0, classes): one, or one a
  // place of the label map, row-major; -1 is a place without a class, which no loss counts. The spans hold
  // element_count(sample_dims()) and element_count(target_dims()) elements (which is 1 for one class a
  // sample).
  virtual void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const = 0;
};

struct DatasetSplits {
  std::unique_ptr<Dataset> training;
  std::unique_ptr<Dataset> test;  // null: no evaluation
};

struct DatasetOptions {
  // fashion-mnist[:DIR]  gzipped IDX files, 1x28x28 in 10 classes; by default those of Debian's package
  // cifar10:DIR          the binary version, 3x32x32 in 10 classes; DIR may hold cifar-10-batches-bin
  // images:DIR           JPEG and PNG files DIR/train/CLASS/* and DIR/test/CLASS/* (or val; or neither), or
  //                      DIR/CLASS/*: any height and width, to which each image is cropped and scaled; 3
  //                      channels, or 1 (grey)
  // synthetic            of any shape, a function of seed and index; the only one with label maps
  std::string text;
  Dims sample_dims;          // what the network takes; of a data set with a shape of its own, it must agree
  Dims target_dims;          // empty, or the space of the label maps that the network learns
  std::int64_t classes = 0;  // of the network; likewise
  std::uint64_t seed = 1;    // of synthetic samples and of augmentation
  // Training images (2-D) are shifted by up to `crop_padding` pixels either way, zeros (after normalisation)
  // coming in, and half of them mirrored left to right: a function of (seed, epoch, index) alone. Label maps
  // move along, with -1 coming in.
  bool augment = false;
  std::int64_t crop_padding = 4;  // at least 0, less than height and width
};

// Throws InvalidArgument (unknown name, a shape, label map or number of classes that does not fit) and
// DataError (missing, damaged, truncated: says which file and what was expected).
DatasetSplits open_dataset(const DatasetOptions& options);

// Which samples make up which batch. Training (`shuffle`): every epoch a fresh permutation by (seed, epoch),
// and every batch is full: where the samples do not fill the last batch of an epoch, the permutation starts
// again from its beginning. These samples are seen once more in that epoch, and count, since a batch's
// statistics are taken over all of its places (batch normalisation): a place filled with anything but a
// sample would be learned. Evaluation: in order, each sample once. Its last batch may be short; the missing
// places are filled with zeros and target -1, which no loss counts, and inference has no batch statistics.
//
// Where a batch is more than one device computes at once, it is cut into parts of equal size, of which a rank
// has its own, one behind the other. So the samples of a batch, and their order, are the same however many
// ranks share it, and each rank has as many parts as any other.
struct BatchOrder {
  std::uint64_t samples = 0;
  std::int64_t batch = 0;  // of all parts together
  bool shuffle = false;    // training; else evaluation
  std::uint64_t seed = 0;
  // What this reader has of each batch: `own_parts` of `parts`, from `first_part` on. `batch` is a multiple
  // of `parts`.
  std::uint32_t parts = 1;
  std::uint32_t first_part = 0;
  std::uint32_t own_parts = 1;

  std::int64_t part() const { return batch / parts; }  // samples
  std::uint64_t batches_per_epoch() const;
  // The epoch that part `number`, counted over this reader's parts from the start of training, belongs to;
  // from 0.
  std::uint64_t epoch(std::uint64_t number) const;
  // Indices of the samples of this reader's part `number`: part() of them with `shuffle`; else at most as
  // many, and at least one of a batch that is not cut.
  std::vector<std::uint64_t> indices(std::uint64_t number) const;
};

// One batch, or one part of it, in page-locked memory.
struct StagedBatch {
  std::uint64_t number = 0;
  AddressRange images;        // batch x sample, fp32, channels last
  AddressRange targets;       // batch x label map, i32
  std::uint32_t samples = 0;  // that count; less than there are places only in evaluation
  std::uint32_t slot = 0;     // the loader's own
};

// Loads and converts batches ahead on a thread of its own, into a ring of page-locked slots that it takes
// once. next() and recycle() belong to one thread. A failure in the thread surfaces at next(): what
// Dataset::read() throws, and DataError, which names the sample, for a class that is not one of the data
// set's. A new loader goes on after it.
class BatchLoader {
 public:
  // Parts `first` to `first + count - 1` of this reader's: batches, where they are not cut. The data set must
  // outlive the loader.
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
