#include "vdnn/initialisation.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "src/base/random.h"
#include "vdnn/sha256.h"

namespace vdnn {

namespace {

// Returns a number from the standard normal distribution (Box and Muller 1958), computed from two uniform
// numbers in (0, 1].
double normal(SplitMix64& random) {
  const auto uniform = [&random] { return static_cast<double>((random.next() >> 11) + 1) * 0x1p-53; };
  const double radius = std::sqrt(-2.0 * std::log(uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

double deviation_of(const ParameterRecipe& recipe) {
  switch (recipe.initializer) {
    case Initializer::kZero:
    case Initializer::kOne:
      return 0;
    case Initializer::kHeNormal:
      return std::sqrt(2.0 / static_cast<double>(recipe.fan_in));
    case Initializer::kLogitsNormal:
      return 0.01;
  }
  return 0;
}

}  // namespace

std::vector<std::vector<float>> initial_parameters(const Tape& tape, std::uint64_t seed) {
  std::vector<std::vector<float>> result;
  for (const TapeParameter& parameter : tape.parameters()) {
    // Each parameter has its own random sequence, so that an additional layer does not change the parameters
    // of earlier layers.
    SplitMix64 random(mix_seed(seed, result.size()));
    const float constant = parameter.recipe.initializer == Initializer::kOne ? 1.0F : 0.0F;
    std::vector<float> values(parameter.recipe.type.elements(), constant);
    const double deviation = deviation_of(parameter.recipe);
    if (deviation > 0) {
      for (float& value : values) {
        value = static_cast<float>(deviation * normal(random));
      }
    }
    result.push_back(std::move(values));
  }
  return result;
}

std::string parameters_sha256(const std::vector<std::vector<float>>& parameters) {
  static_assert(std::endian::native == std::endian::little, "the hash is defined over little-endian numbers");
  Sha256 hash;
  for (const std::vector<float>& values : parameters) {
    hash.update(std::as_bytes(std::span(values)));
  }
  return hash.hex_digest();
}

}  // namespace vdnn
