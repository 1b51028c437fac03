#include "vdnn/precision.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/base/near_names.h"
#include "src/network/shapes.h"
#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn {

namespace {

// Whether mixed precision keeps the layer in fp32, whatever the options. This is true for losses, which sum
// over many classes, and for custom layers, whose code supports no other type.
bool always_fp32(const OpSpec& spec) {
  return is_loss(spec) || std::holds_alternative<CustomSpec>(spec);
}

void require_layers(const Network& network, const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Layer& layer : network.layers()) {
    known.push_back(layer.name);
    known.emplace_back(kind_of(layer.spec));
  }
  std::ranges::sort(known);
  known.erase(std::unique(known.begin(), known.end()), known.end());
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) == known.end()) {
      throw InvalidArgument("fp32 layers: network " + network.name() + " has no layer or kind of layer '" +
                            name + "'; similar: " + near_names(name, known));
    }
  }
}

}  // namespace

Network Network::with_precision(const PrecisionOptions& options) const {
  if (!is_floating(options.storage)) {
    throw InvalidArgument(std::string("feature maps cannot be stored as ") + to_string(options.storage) +
                          ": supported are fp32, fp16 and bf16");
  }
  if (std::ranges::any_of(
          layers_, [](const Layer& layer) { return std::holds_alternative<ConversionSpec>(layer.spec); })) {
    if (options == PrecisionOptions{}) {
      return *this;
    }
    throw InvalidArgument("network " + name_ +
                          " has conversions already: its precision cannot be changed again");
  }
  require_layers(*this, options.fp32_layers);
  const auto listed = [&](const std::string& name) {
    return std::ranges::find(options.fp32_layers, name) != options.fp32_layers.end();
  };
  Network typed = *this;
  typed.layers_.clear();
  std::map<std::pair<std::uint32_t, DataType>, std::uint32_t> conversions;
  const auto converted = [&](std::uint32_t map, DataType type) {
    if (!is_floating(typed.types_[map].data_type) || typed.types_[map].data_type == type) {
      return map;
    }
    const auto [known, added] =
        conversions.try_emplace({map, type}, static_cast<std::uint32_t>(typed.types_.size()));
    if (added) {
      TensorType other = typed.types_[map];
      other.data_type = type;
      const std::string name = typed.names_[map];
      typed.types_.push_back(std::move(other));
      typed.names_.push_back(name + "." + to_string(type));
      typed.layers_.push_back(
          {name + ".to_" + to_string(type), ConversionSpec{.to = type}, {map}, known->second});
    }
    return known->second;
  };
  for (const Layer& layer : layers_) {
    const bool fp32 = always_fp32(layer.spec) || listed(layer.name) || listed(kind_of(layer.spec));
    Layer moved = layer;
    std::vector<NamedType> inputs;
    for (std::uint32_t& input : moved.inputs) {
      input = converted(input, fp32 ? DataType::kF32 : options.storage);
      inputs.push_back({typed.names_[input], typed.types_[input]});
    }
    typed.types_[layer.output] = infer_output(layer.name, layer.spec, inputs);
    typed.layers_.push_back(std::move(moved));
  }
  return typed;
}

}  // namespace vdnn
