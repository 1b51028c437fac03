#include "src/ops/cuda/sampled_convolution.h"

#include <algorithm>

#include "src/base/random.h"

namespace vdnn::cuda {

namespace {

// Coordinates of an element of a tensor N x C x spatial dimensions, stored channels last.
struct Place {
  std::int64_t outer = 0;
  Dims space;
  std::int64_t channel = 0;
};

Dims space_of(const Dims& dims) {
  return {dims.begin() + 2, dims.end()};
}

Place place_of(const Dims& dims, std::uint64_t element) {
  Place place{.space = space_of(dims)};
  auto rest = static_cast<std::int64_t>(element);
  place.channel = rest % dims[1];
  rest /= dims[1];
  for (std::size_t axis = place.space.size(); axis-- > 0;) {
    place.space[axis] = rest % dims[axis + 2];
    rest /= dims[axis + 2];
  }
  place.outer = rest;
  return place;
}

std::uint64_t element_at(const Dims& dims, std::int64_t outer, const Dims& space, std::int64_t channel) {
  std::int64_t element = outer;
  for (std::size_t axis = 0; axis < space.size(); ++axis) {
    element = element * dims[axis + 2] + space[axis];
  }
  return static_cast<std::uint64_t>(element * dims[1] + channel);
}

template <class Visit>
void for_each_in(const Dims& extents, const Visit& visit) {
  Dims at(extents.size());
  for (std::uint64_t left = element_count(extents); left > 0; --left) {
    visit(at);
    for (std::size_t axis = extents.size(); axis-- > 0;) {
      if (++at[axis] < extents[axis]) {
        break;
      }
      at[axis] = 0;
    }
  }
}

class Sum {
 public:
  Sum(const EngineQuestion& question, std::uint64_t element, const RepeatedValues& first,
      const RepeatedValues& second)
      : c_(question.convolution),
        dilation_(ops::dilation_of(c_)),
        inputs_(c_.input_channels / c_.groups),
        outputs_(c_.output_channels / c_.groups),
        tensors_(tensors_of(question)),
        place_(place_of(tensors_.result, element)),
        first_(first),
        second_(second) {
    sampled_.element = element;
  }

  SampledElement forward() {
    const std::int64_t group = place_.channel / outputs_;
    for_each_in(c_.kernel, [&](const Dims& tap) {
      Dims input(tap.size());
      if (!input_of(place_.space, tap, input)) {
        return;
      }
      const std::uint64_t x = element_at(tensors_.first, place_.outer, input, group * inputs_);
      const std::uint64_t w = element_at(tensors_.second, place_.channel, tap, 0);
      for (std::uint64_t channel = 0; channel < static_cast<std::uint64_t>(inputs_); ++channel) {
        add(x + channel, w + channel);
      }
    });
    return sampled_;
  }

  SampledElement data_gradient() {
    const std::int64_t group = place_.channel / inputs_;
    for_each_in(c_.kernel, [&](const Dims& tap) {
      Dims output(tap.size());
      if (!output_of(place_.space, tap, output)) {
        return;
      }
      for (std::int64_t k = group * outputs_; k < (group + 1) * outputs_; ++k) {
        add(element_at(tensors_.first, place_.outer, output, k),
            element_at(tensors_.second, k, tap, place_.channel % inputs_));
      }
    });
    return sampled_;
  }

  SampledElement filter_gradient() {
    const std::int64_t channel = place_.outer / outputs_ * inputs_ + place_.channel;
    for_each_in(c_.output, [&](const Dims& output) {
      Dims input(output.size());
      if (!input_of(output, place_.space, input)) {
        return;
      }
      for (std::int64_t n = 0; n < c_.batch; ++n) {
        add(element_at(tensors_.first, n, input, channel),
            element_at(tensors_.second, n, output, place_.outer));
      }
    });
    return sampled_;
  }

 private:
  // Finds the input at a tap of the window of `output`. Returns false if the tap is in the padding.
  bool input_of(const Dims& output, const Dims& tap, Dims& input) const {
    for (std::size_t axis = 0; axis < input.size(); ++axis) {
      input[axis] = output[axis] * c_.stride[axis] - c_.padding[axis] + tap[axis] * dilation_[axis];
      if (input[axis] < 0 || input[axis] >= c_.input[axis]) {
        return false;
      }
    }
    return true;
  }
  // Finds the output whose window has `input` at this tap. Returns false if there is none.
  bool output_of(const Dims& input, const Dims& tap, Dims& output) const {
    for (std::size_t axis = 0; axis < output.size(); ++axis) {
      const std::int64_t begin = input[axis] + c_.padding[axis] - tap[axis] * dilation_[axis];
      output[axis] = begin / c_.stride[axis];
      if (begin < 0 || begin % c_.stride[axis] != 0 || output[axis] >= c_.output[axis]) {
        return false;
      }
    }
    return true;
  }

  void add(std::uint64_t first, std::uint64_t second) {
    const double product = first_.at(first) * second_.at(second);
    sampled_.value += product;
    sampled_.squares += product * product;
    ++sampled_.products;
  }

  const ops::Convolution& c_;
  Dims dilation_;
  std::int64_t inputs_;   // input channels of one group
  std::int64_t outputs_;  // output channels of one group
  PassTensors tensors_;
  Place place_;
  const RepeatedValues& first_;
  const RepeatedValues& second_;
  SampledElement sampled_;
};

}  // namespace

PassTensors tensors_of(const EngineQuestion& question) {
  ops::ConvolutionDims dims = ops::dims_of(question.convolution);
  switch (question.direction) {
    case Direction::kForward:
      return {std::move(dims.x), std::move(dims.filter), std::move(dims.y)};
    case Direction::kBackwardData:
      return {std::move(dims.y), std::move(dims.filter), std::move(dims.x)};
    case Direction::kBackwardFilter:
      return {std::move(dims.x), std::move(dims.y), std::move(dims.filter)};
    case Direction::kUpdate:
      break;
  }
  throw InvalidArgument("a convolution has no update pass");
}

SampledElement sample_convolution(const EngineQuestion& question, std::uint64_t element,
                                  const RepeatedValues& first, const RepeatedValues& second) {
  Sum sum(question, element, first, second);
  switch (question.direction) {
    case Direction::kForward:
      return sum.forward();
    case Direction::kBackwardData:
      return sum.data_gradient();
    default:
      return sum.filter_gradient();
  }
}

std::uint64_t longest_sum(const EngineQuestion& question) {
  const ops::Convolution& c = question.convolution;
  const std::uint64_t taps = element_count(c.kernel);
  switch (question.direction) {
    case Direction::kForward:
      return taps * static_cast<std::uint64_t>(c.input_channels / c.groups);
    case Direction::kBackwardData:
      return taps * static_cast<std::uint64_t>(c.output_channels / c.groups);
    default:
      return element_count(c.output) * static_cast<std::uint64_t>(c.batch);
  }
}

std::vector<std::uint64_t> sampled_elements(const Dims& dims, std::size_t count, std::uint64_t seed) {
  std::vector<std::uint64_t> elements;
  const Dims ends(dims.size(), 2);
  for_each_in(ends, [&](const Dims& end) {
    const auto at = [&](std::size_t axis) { return end[axis] * (dims[axis] - 1); };
    Dims space;
    for (std::size_t axis = 2; axis < dims.size(); ++axis) {
      space.push_back(at(axis));
    }
    elements.push_back(element_at(dims, at(0), space, at(1)));
  });
  std::ranges::sort(elements);
  elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  SplitMix64 random(seed);
  while (elements.size() < count) {
    elements.push_back(random.below(element_count(dims)));
  }
  return elements;
}

}  // namespace vdnn::cuda
