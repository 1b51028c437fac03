#include "src/data/dataset_checks.h"

#include "vdnn/option_error.h"

namespace vdnn {

namespace {

void check_room(const char* what, std::uint64_t expected, std::size_t found) {
  if (found != expected) {
    throw InvalidArgument("a sample has " + std::to_string(expected) + " " + what + ", but the span has " +
                          std::to_string(found));
  }
}

}  // namespace

void check_read(const Dataset& data, const SampleKey& key, std::span<const float> image,
                std::span<const std::int32_t> targets) {
  if (key.index >= data.size()) {
    throw InvalidArgument("sample " + std::to_string(key.index) + " of a data set of " +
                          std::to_string(data.size()));
  }
  check_room("elements", element_count(data.sample_dims()), image.size());
  check_room("targets", element_count(data.target_dims()), targets.size());
}

void require_one_class_a_sample(const std::string& name, const DatasetOptions& options) {
  if (!options.target_dims.empty()) {
    throw InvalidArgument(name + " has one class per sample, the network needs a label map of " +
                          to_string(options.target_dims));
  }
}

void require_samples(const std::string& name, const Dims& dims, std::int64_t classes,
                     const DatasetOptions& options) {
  if (options.sample_dims != dims || options.classes != classes) {
    throw UnsuitableOptions(name + " has samples of " + to_string(dims) + " in " + std::to_string(classes) +
                                " classes, the network expects " + to_string(options.sample_dims) + " in " +
                                std::to_string(options.classes),
                            {{.option = "model.input", .value = to_string(dims)},
                             {.option = "model.classes", .value = std::to_string(classes)}});
  }
}

}  // namespace vdnn
