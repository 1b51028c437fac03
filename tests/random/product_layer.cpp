#include "tests/random/product_layer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "vdnn/error.h"

namespace vdnn::testing {

namespace {

std::span<float> numbers(const AddressRange& range) {
  return {pointer_to<float>(range.begin), range.bytes / sizeof(float)};
}

// Forward makes the product and then a copy of b; backward reads only the copy.
class Product final : public CustomLayer {
 public:
  std::string kind() const override { return "product"; }

  TensorType output(std::span<const TensorType> inputs) const override {
    if (inputs.size() != 2 || inputs[0] != inputs[1]) {
      throw InvalidArgument("two inputs of one type make a product");
    }
    return inputs[0];
  }

  LayerRecipe describe(const CustomQuestion& question) const override {
    using enum OperandRole;
    const auto elements = static_cast<double>(question.output.elements());
    const Cost cost{.flops = elements, .bytes = 12 * elements};
    const Algorithm plain{.name = "plain"};
    const Algorithm buffered{.name = "buffered", .workspace_bytes = question.output.bytes()};
    LayerRecipe recipe;
    recipe.forward = {{.direction = Direction::kForward,
                       .reads = {{kInput, 0}, {kInput, 1}},
                       .writes = {{kOutput, 0}},
                       .may_overwrite = {},
                       .algorithms = {buffered, plain},
                       .cost = cost}};
    if (question.mode == Mode::kTraining) {
      recipe.saved = {{.name = "factor", .type = question.inputs[1]}};
      recipe.forward.push_back({.direction = Direction::kForward,
                                .reads = {{kInput, 1}},
                                .writes = {{kSaved, 0}},
                                .may_overwrite = {{.write = 0, .read = 0}},
                                .algorithms = {plain},
                                .cost = cost});
      recipe.backward = {{.direction = Direction::kBackwardData,
                          .reads = {{kOutputGradient, 0}, {kInput, 0}, {kSaved, 0}},
                          .writes = {{kInputGradient, 0}, {kInputGradient, 1}},
                          .may_overwrite = {{.write = 0, .read = 2}, {.write = 1, .read = 1}},
                          .algorithms = {plain},
                          .cost = cost}};
    }
    return recipe;
  }

  void run(const CustomLaunch& launch) const override {
    if (launch.direction != Direction::kForward) {
      go_back(launch);
    } else if (launch.position == 0) {
      multiply(launch);
    } else {
      const AddressRange& to = launch.operands.writes[0];  // may be the same memory
      std::memmove(pointer_to<void>(to.begin), pointer_to<void>(launch.operands.reads[0].begin), to.bytes);
    }
  }

 private:
  static void multiply(const CustomLaunch& launch) {
    const std::span<const float> a = numbers(launch.operands.reads[0]);
    const std::span<const float> b = numbers(launch.operands.reads[1]);
    const std::span<float> y = numbers(launch.operands.writes[0]);
    // The first algorithm writes through its workspace, so that a wrong workspace shows in the result.
    const std::span<float> through = launch.algorithm == 0 ? numbers(launch.operands.workspace) : y;
    for (std::size_t i = 0; i < y.size(); ++i) {
      through[i] = a[i] * b[i];
    }
    if (launch.algorithm == 0) {
      std::ranges::copy(through.first(y.size()), y.begin());
    }
  }

  // Each element is read before either gradient is written, since a gradient may overwrite an input.
  static void go_back(const CustomLaunch& launch) {
    const std::span<const float> dy = numbers(launch.operands.reads[0]);
    const std::span<const float> a = numbers(launch.operands.reads[1]);
    const std::span<const float> b = numbers(launch.operands.reads[2]);
    for (std::size_t i = 0; i < dy.size(); ++i) {
      const float da = dy[i] * b[i];
      const float db = dy[i] * a[i];
      numbers(launch.operands.writes[0])[i] = da;
      numbers(launch.operands.writes[1])[i] = db;
    }
  }
};

}  // namespace

std::shared_ptr<const CustomLayer> make_product() {
  return std::make_shared<Product>();
}

}  // namespace vdnn::testing
