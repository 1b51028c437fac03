#pragma once
// Data sets, and the loader that prepares their batches ahead of time.

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

// A sample in one pass over the data: augmentation produces another view of a sample in every epoch.
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
  // Empty for one class per sample; otherwise the space of a label map, which has a class at each place.
  virtual const Dims& target_dims() const = 0;
  virtual std::int64_t classes() const = 0;
  // Writes a sample as normalised fp32, channels last (H, W, C). Also writes its classes in [0, classes): one
  // per sample or per place of the label map, row-major. -1 marks a place without a class, which no loss
  // counts. The spans hold element_count(sample_dims()) and element_count(target_dims()) elements; with one
  // class per sample, `targets` holds one element.
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
  Dims sample_dims;          // of the network; a data set with a fixed shape must agree
  Dims target_dims;          // empty, or the space of the label maps that the network learns
  std::int64_t classes = 0;  // of the network; a data set with fixed classes must agree
  std::uint64_t seed = 1;    // of synthetic samples and of augmentation
  // Training images (2-D) are shifted by up to `crop_padding` pixels either way and filled up with zeros
  // (after normalisation), and half of them are mirrored left to right. All of it depends only on (seed,
  // epoch, index). Label maps move with their images and are filled up with -1.
  bool augment = false;
  std::int64_t crop_padding = 4;  // at least 0, less than height and width
};

// Throws InvalidArgument for an unknown name, and UnsuitableOptions or InvalidArgument for a shape, label map
// or number of classes that the data do not have. Throws DataError, with the file and what was expected, for
// data that are missing, damaged or truncated.
DatasetSplits open_dataset(const DatasetOptions& options);

// The samples of each batch.
//
// In training (`shuffle`), every epoch has a fresh permutation by (seed, epoch), and every batch is full. If
// the samples do not fill the last batch of an epoch, the permutation starts again from its beginning. These
// samples occur twice in the epoch and count both times: batch normalisation computes its statistics over all
// places of a batch, so an empty place would change them.
//
// Evaluation reads each sample once, in order. Its last batch may be short. The missing places are filled
// with zeros and target -1, which no loss counts; inference has no batch statistics.
//
// A batch of several micro-steps or ranks is cut into parts of equal size, and each rank has the same number
// of consecutive parts. So the samples of a batch and their order do not depend on the number of ranks.
struct BatchOrder {
  std::uint64_t samples = 0;
  std::int64_t batch = 0;  // of all parts together
  bool shuffle = false;    // training; else evaluation
  std::uint64_t seed = 0;
  // This reader's parts of each batch: `own_parts` of `parts`, from `first_part` on. `batch` is a multiple of
  // `parts`.
  std::uint32_t parts = 1;
  std::uint32_t first_part = 0;
  std::uint32_t own_parts = 1;

  std::int64_t part() const { return batch / parts; }  // samples
  std::uint64_t batches_per_epoch() const;
  // The epoch, from 0, of part `number`, which counts this reader's parts from the start of training.
  std::uint64_t epoch(std::uint64_t number) const;
  // Indices of the samples of this reader's part `number`: part() of them with `shuffle`; otherwise at most
  // part(), and at least one if batches are not cut.
  std::vector<std::uint64_t> indices(std::uint64_t number) const;
};

// One batch, or one part of it, in page-locked memory.
struct StagedBatch {
  std::uint64_t number = 0;
  AddressRange images;        // batch x sample, fp32, channels last
  AddressRange targets;       // batch x label map, i32
  std::uint32_t samples = 0;  // in evaluation possibly fewer than the batch has places
  std::uint32_t slot = 0;     // for the loader
};

// Loads and converts batches ahead on a separate thread, into a ring of page-locked slots that it allocates
// once. Call next() and recycle() from one thread. next() throws the failures of the loading thread. These
// are exceptions of Dataset::read(), and DataError for a sample whose class the data set does not have; the
// error names the sample. Create a new loader to continue after a failure.
class BatchLoader {
 public:
  // Loads this reader's parts `first` to `first + count - 1`; a part is a whole batch unless batches are cut.
  // The data set must outlive the loader.
  BatchLoader(Device& device, PinnedPool& pool, const Dataset& data, BatchOrder order, std::uint64_t first,
              std::uint64_t count, std::uint32_t slots = kStagedBatches);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The next batch; blocks until it is converted. Throws InvalidArgument past the last one.
  StagedBatch next();
  // Lets the loader overwrite the batch's memory once `copied` is reached.
  void recycle(const StagedBatch& batch, const Frontier& copied);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
