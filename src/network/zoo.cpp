#include "vdnn/zoo.h"

#include <algorithm>
#include <iterator>

#include "src/base/near_names.h"
#include "src/network/zoo/models.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

std::vector<zoo::Model> all_models() {
  std::vector<zoo::Model> models;
  for (const auto list : {zoo::classic_networks, zoo::vgg_networks, zoo::googlenet, zoo::resnets,
                          zoo::mobilenet, zoo::densenet, zoo::unet}) {
    std::ranges::move(list(), std::back_inserter(models));
  }
  return models;
}

zoo::Model find_model(const std::string& name) {
  std::string known;
  std::vector<std::string> names;
  for (zoo::Model& model : all_models()) {
    if (model.name == name) {
      return std::move(model);
    }
    known += (known.empty() ? "" : ", ") + model.name;
    names.push_back(model.name);
  }
  throw InvalidArgument("unknown model '" + name + "'" + did_you_mean(name, names) + "; known: " + known);
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const zoo::Model& model : all_models()) {
    names.push_back(model.name);
  }
  return names;
}

Network make_model(const ModelOptions& options) {
  const zoo::Model model = find_model(options.model);
  if (options.batch <= 0) {
    throw InvalidArgument("model " + options.model + ": batch " + std::to_string(options.batch) +
                          " is not positive");
  }
  if (options.classes < 0) {
    throw InvalidArgument("model " + options.model + ": " + std::to_string(options.classes) + " classes");
  }
  Dims input{options.batch};
  std::ranges::copy(options.input.empty() ? model.input : options.input, std::back_inserter(input));
  NetworkBuilder net(options.model, std::move(input));
  model.build(net, options.classes == 0 ? model.classes : options.classes);
  return std::move(net).build();
}

}  // namespace vdnn
