// Builds networks from lists of layers. Each layer is placed after the layers that it reads. If several
// layers can be placed next, the first of them in the list is. So a list that is already in order keeps its
// order.

#include <algorithm>
#include <map>
#include <set>

#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn {

namespace {

class Assembly {
 public:
  Assembly(const std::string& name, const Dims& input, std::vector<LayerDescription> layers,
           const std::vector<TargetDescription>& targets)
      : name_(name), layers_(std::move(layers)), net_(name, input) {
    known_.emplace("images", net_.input());
    for (const TargetDescription& target : targets) {
      require_new(target.name);
      known_.emplace(target.name, net_.target(target.name, target.type));
    }
    std::set<std::string> makers;
    for (const LayerDescription& layer : layers_) {
      require_new(layer.name);
      if (!makers.insert(layer.name).second) {
        reject("the layer name '" + layer.name + "' repeats");
      }
    }
    for (const LayerDescription& layer : layers_) {
      check_uses(layer, makers);
    }
  }

  Network build() && {
    std::vector<bool> placed(layers_.size());
    for (std::size_t count = 0; count < layers_.size(); ++count) {
      const std::size_t next = first_ready(placed);
      if (next == layers_.size()) {
        reject("layers form a cycle: " + cycle(placed));
      }
      place(layers_[next]);
      placed[next] = true;
    }
    return std::move(net_).build();
  }

 private:
  [[noreturn]] void reject(const std::string& why) const {
    throw InvalidArgument("network " + name_ + ": " + why);
  }
  void require_new(const std::string& name) const {
    if (known_.contains(name)) {
      reject("the name '" + name + "' is taken");
    }
  }

  void check_uses(const LayerDescription& layer, const std::set<std::string>& makers) const {
    for (const std::string& read : layer.inputs) {
      if (!known_.contains(read) && !makers.contains(read)) {
        reject("layer " + layer.name + " reads '" + read + "', which no layer makes");
      }
      if (std::ranges::any_of(layers_, [&](const LayerDescription& other) {
            return other.name == read && is_loss(other.spec);
          })) {
        reject("layer " + layer.name + " reads '" + read + "', which is a loss and has no feature map");
      }
    }
    if (layer.output && is_loss(layer.spec)) {
      reject("layer " + layer.name + " is a loss and cannot be an output: every step returns its metrics");
    }
  }

  std::size_t first_ready(const std::vector<bool>& placed) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (!placed[i] && std::ranges::all_of(layers_[i].inputs, [&](const std::string& input) {
            return known_.contains(input);
          })) {
        return i;
      }
    }
    return layers_.size();
  }

  void place(const LayerDescription& layer) {
    std::vector<Tensor> inputs;
    for (const std::string& input : layer.inputs) {
      inputs.push_back(known_.at(input));
    }
    Tensor made;
    if (is_loss(layer.spec) && inputs.size() == 1) {
      std::visit([&](const auto& spec) { shared_loss(layer.name, spec, inputs[0]); }, layer.spec);
    } else {
      made = net_.layer(layer.name, layer.spec, inputs);
    }
    known_.emplace(layer.name, made);
    if (layer.output) {
      net_.output(made);
    }
  }

  void shared_loss(const std::string& name, const SoftmaxCrossEntropySpec& spec, Tensor prediction) {
    net_.softmax_cross_entropy(name, prediction, spec);
  }
  void shared_loss(const std::string& name, const MeanSquaredErrorSpec& spec, Tensor prediction) {
    net_.mean_squared_error(name, prediction, spec);
  }
  void shared_loss(const std::string& name, const DiceCrossEntropySpec& spec, Tensor prediction) {
    net_.dice_cross_entropy(name, prediction, spec);
  }
  template <class Other>
  void shared_loss(const std::string&, const Other&, Tensor) {}

  // Every unplaced layer reads another unplaced layer. So a path that goes from each unplaced layer to an
  // unplaced layer that it reads leads into a cycle.
  std::string cycle(const std::vector<bool>& placed) const {
    std::map<std::string, std::string> waits_for;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (!placed[i]) {
        waits_for[layers_[i].name] = *std::ranges::find_if(
            layers_[i].inputs, [&](const std::string& input) { return !known_.contains(input); });
      }
    }
    std::string at = waits_for.begin()->first;
    for (std::size_t i = 0; i < waits_for.size(); ++i) {
      at = waits_for[at];  // after as many steps as there are layers, `at` is on the cycle
    }
    std::string text = at;
    for (std::string next = waits_for[at]; next != at; next = waits_for[next]) {
      text += " reads " + next + ", which";
    }
    return text + " reads " + at;
  }

  const std::string& name_;
  std::vector<LayerDescription> layers_;
  NetworkBuilder net_;
  std::map<std::string, Tensor> known_;
};

}  // namespace

Network build_network(const std::string& name, const Dims& input, std::vector<LayerDescription> layers,
                      const std::vector<TargetDescription>& targets) {
  return Assembly(name, input, std::move(layers), targets).build();
}

}  // namespace vdnn
