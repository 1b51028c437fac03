#include "src/ops/classic/convolution_algorithms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "src/ops/product_names.h"
#include "vdnn/size.h"

namespace vdnn::classic {

namespace {

// The rates of share/devices/titan-x.json for convolutions and for memory.
constexpr double kFlopsPerSecond = 4.2e12;
constexpr double kBytesPerSecond = 268.8e9;
// The methods' rates as fractions of kFlopsPerSecond; the header gives the reasons.
constexpr double kImplicitEfficiency = 0.6;
constexpr double kFftEfficiency = 0.55;
constexpr double kWinogradEfficiency = 0.75;
constexpr double kBlock = 64;                   // filters that share a transformed tile
constexpr std::uint64_t kReal = sizeof(float);  // transforms use fp32 for operands of any type
constexpr std::uint64_t kOffset = 4;            // bytes of an offset in precomp's table
constexpr std::uint64_t kComplex = 2 * sizeof(float);
constexpr std::int64_t kTile = 32;
constexpr std::int64_t kLargestPlane = 256;  // largest extent of a plane for fft

std::uint64_t product(std::initializer_list<std::uint64_t> factors) {
  std::uint64_t result = 1;
  for (const std::uint64_t factor : factors) {
    result = checked_multiply(result, factor);
  }
  return result;
}

std::int64_t divide_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit;
}

// The cost of any pass: the arithmetic of the product, and the bytes of X, Y and filter.
Cost convolution_cost(const Convolution& convolution, DataType elements) {
  const auto batch = static_cast<double>(convolution.batch);
  const auto inputs = static_cast<double>(convolution.input_channels);
  const auto outputs = static_cast<double>(convolution.output_channels);
  const auto filter = outputs * inputs * static_cast<double>(element_count(convolution.kernel)) /
                      static_cast<double>(convolution.groups);
  const auto input_space = static_cast<double>(element_count(convolution.input));
  const auto output_space = static_cast<double>(element_count(convolution.output));
  return {.flops = 2 * batch * output_space * filter,
          .bytes = static_cast<double>(size_of(elements)) *
                   (batch * (inputs * input_space + outputs * output_space) + filter),
          .arithmetic = Arithmetic::kConvolution};
}

using SecondsOf = std::function<double(const Cost&)>;

class Estimate {
 public:
  // `products` is the precision of methods that multiply matrices.
  Estimate(const Convolution& convolution, Direction pass, DataType elements, ProductPrecision products,
           SecondsOf seconds)
      : c_(convolution),
        pass_(pass),
        element_(size_of(elements)),
        products_(products),
        seconds_(std::move(seconds)),
        batch_(static_cast<std::uint64_t>(convolution.batch)),
        inputs_(static_cast<std::uint64_t>(convolution.input_channels)),
        outputs_(static_cast<std::uint64_t>(convolution.output_channels)),
        window_(element_count(convolution.kernel)),
        cost_(convolution_cost(convolution, elements)) {}

  std::vector<Algorithm> algorithms() {
    implicit_gemm();
    if (c_.groups == 1 && !dilated()) {
      implicit_precomp_gemm();
      if (c_.kernel.size() == 2) {
        gemm();
        transformed();
      }
    }
    std::ranges::stable_sort(candidates_, [](const Candidate& a, const Candidate& b) {
      return std::pair(a.seconds, a.algorithm.workspace_bytes) <
             std::pair(b.seconds, b.algorithm.workspace_bytes);
    });
    std::vector<Algorithm> sorted;
    for (Candidate& candidate : candidates_) {
      sorted.push_back(std::move(candidate.algorithm));
    }
    return sorted;
  }

 private:
  struct Candidate {
    Algorithm algorithm;
    double seconds = 0;
  };

  bool dilated() const {
    return std::ranges::any_of(c_.dilation, [](std::int64_t dilation) { return dilation != 1; });
  }
  // True if `predicate(kernel, stride, padding, input)` holds for all dimensions.
  template <class Predicate>
  bool everywhere(Predicate predicate) const {
    for (std::size_t i = 0; i < c_.kernel.size(); ++i) {
      if (!predicate(c_.kernel[i], c_.stride[i], c_.padding[i], c_.input[i])) {
        return false;
      }
    }
    return true;
  }

  void add(std::string name, std::uint64_t workspace_bytes, double flops,
           ProductPrecision precision = ProductPrecision::kFp32) {
    const Cost cost{.flops = flops,
                    .bytes = cost_.bytes + 2 * static_cast<double>(workspace_bytes),
                    .arithmetic = Arithmetic::kConvolution,
                    .precision = precision};
    const double seconds = seconds_(cost);
    candidates_.push_back(
        {.algorithm = {.name = std::move(name), .workspace_bytes = workspace_bytes, .cost = cost},
         .seconds = seconds});
  }

  void add_product(const std::string& name, std::uint64_t workspace_bytes, double flops) {
    add(products_ == ProductPrecision::kTf32 ? ops::in_tf32(name) : name, workspace_bytes, flops, products_);
  }

  void implicit_gemm() { add_product("implicit_gemm", 0, cost_.flops / kImplicitEfficiency); }

  void implicit_precomp_gemm() {
    const std::uint64_t gathered = pass_ == Direction::kBackwardData ? outputs_ : inputs_;
    add_product("implicit_precomp_gemm", product({kOffset, gathered, window_}), cost_.flops);
  }

  void gemm() {
    add_product("gemm", product({element_, batch_, inputs_, window_, element_count(c_.output)}), cost_.flops);
  }

  // Adds the methods that compute the convolution in a transformed space, which need stride 1.
  void transformed() {
    const auto unit_stride = [](auto, auto stride, auto, auto) { return stride == 1; };
    const auto padded_less = [](auto kernel, auto, auto padding, auto) { return padding < kernel; };
    const auto fits_plane = [](auto, auto, auto padding, auto input) {
      return input + 2 * padding <= kLargestPlane;
    };
    const auto fits_tile = [](auto kernel, auto, auto, auto) { return kernel <= kTile; };
    const auto three = [](auto kernel, auto, auto, auto) { return kernel == 3; };
    if (!everywhere(unit_stride)) {
      return;
    }
    if (everywhere(padded_less) && everywhere(fits_plane)) {
      fft();
    }
    if (everywhere(padded_less) && everywhere(fits_tile)) {
      fft_tiling();
    }
    if (everywhere(three) && pass_ != Direction::kBackwardFilter) {
      winograd();
    }
  }

  // Adds a method with FFTs of planes of height x width, `tiles` planes per feature map.
  void spectra(std::string name, std::int64_t tiles, std::int64_t height, std::int64_t width) {
    const auto count = static_cast<std::uint64_t>(tiles);
    const std::uint64_t maps = product({count, batch_, checked_add(inputs_, outputs_)});
    const std::uint64_t planes = checked_add(maps, product({inputs_, outputs_}));
    const auto frequencies = static_cast<std::uint64_t>(height * (width / 2 + 1));
    const auto elements = static_cast<double>(height * width);
    const double transforms = 2.5 * elements * std::log2(elements) * static_cast<double>(planes);
    const double products = 8.0 * static_cast<double>(frequencies) * static_cast<double>(tiles) *
                            static_cast<double>(batch_) * static_cast<double>(inputs_) *
                            static_cast<double>(outputs_);
    add(std::move(name), product({kComplex, frequencies, planes}), (transforms + products) / kFftEfficiency);
  }

  void fft() {
    const auto extent = [this](std::size_t dimension) {
      const std::int64_t padded = c_.input[dimension] + 2 * c_.padding[dimension];
      return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(padded)));
    };
    spectra("fft", 1, extent(0), extent(1));
  }

  void fft_tiling() {
    const auto tiles = [this](std::size_t dimension) {
      return divide_up(c_.output[dimension], kTile + 1 - c_.kernel[dimension]);
    };
    spectra("fft_tiling", tiles(0) * tiles(1), kTile, kTile);
  }

  void winograd() {
    const bool forward = pass_ == Direction::kForward;
    const Dims& made = forward ? c_.output : c_.input;
    const auto from = static_cast<double>(forward ? inputs_ : outputs_);
    const auto to = static_cast<double>(forward ? outputs_ : inputs_);
    const double tiles =
        static_cast<double>(batch_) * static_cast<double>(divide_up(made[0], 2) * divide_up(made[1], 2));
    const double products = 16 * 2 * from * to * tiles;
    const double transforms = (32 * from * std::ceil(to / kBlock) + 24 * to) * tiles + 28 * from * to;
    add("winograd", product({16, kReal, inputs_, outputs_}), (products + transforms) / kWinogradEfficiency);
  }

  const Convolution& c_;
  Direction pass_;
  std::uint64_t element_;  // bytes of an operand's element
  ProductPrecision products_;
  SecondsOf seconds_;
  std::uint64_t batch_;
  std::uint64_t inputs_;
  std::uint64_t outputs_;
  std::uint64_t window_;
  Cost cost_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::vector<Algorithm> convolution_algorithms(const Convolution& convolution, Direction pass,
                                              DataType elements) {
  const auto seconds = [](const Cost& cost) {
    return std::max(cost.flops / kFlopsPerSecond, cost.bytes / kBytesPerSecond);
  };
  return Estimate(convolution, pass, elements, ops::product_precision(elements), seconds).algorithms();
}

std::vector<Algorithm> tensor_core_algorithms(const Convolution& convolution, Direction pass,
                                              const SimProfile& profile, DataType elements) {
  const auto seconds = [&](const Cost& cost) { return profile.seconds(cost); };
  return Estimate(convolution, pass, elements, ops::product_precision(elements, ProductPrecision::kTf32),
                  seconds)
      .algorithms();
}

}  // namespace vdnn::classic
