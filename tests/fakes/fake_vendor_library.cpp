#include "tests/fakes/fake_vendor_library.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "src/tape/narrow_values.h"
#include "tests/ops/channels_last.h"
#include "tests/ops/reference_windows.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn::testing {

namespace {

using cuda::VendorOperands;
using reference::Array;

constexpr std::uint64_t kOperandAlignment = 16;
constexpr std::uint64_t kWorkspaceAlignment = 256;

// Computes the result from the operands in logical order.
using Compute = std::function<Array(const std::vector<Array>&)>;

class FakeOp final : public cuda::VendorOp {
 public:
  struct Parts {
    std::string name;
    std::vector<TensorType> reads;
    TensorType write;
    std::uint64_t workspace_bytes = 0;
    Compute compute;
  };

  FakeOp(Parts parts, FakeVendorLibrary::Record record, HostLaunch launch)
      : parts_(std::make_shared<const Parts>(std::move(parts))),
        record_(std::move(record)),
        launch_(std::move(launch)) {}

  std::uint64_t workspace_bytes() const override { return parts_->workspace_bytes; }

  void run(const VendorOperands& operands, void* stream) const override {
    check(operands);
    const VendorCall call{.name = parts_->name,
                          .reads = {operands.reads.begin(), operands.reads.end()},
                          .write = operands.write,
                          .workspace = operands.workspace,
                          .stream = stream};
    record_(call);
    launch_(stream, [parts = parts_, call] { compute(*parts, call); });
  }

 private:
  static void compute(const Parts& parts, const VendorCall& call) {
    std::fill_n(pointer_to<float>(call.workspace.begin), parts.workspace_bytes / sizeof(float),
                std::numeric_limits<float>::quiet_NaN());
    std::vector<Array> reads;
    for (std::size_t i = 0; i < parts.reads.size(); ++i) {
      reads.push_back(from_channels_last(parts.reads[i].dims,
                                         widened(parts.reads[i].data_type, bytes_at(call.reads[i]))));
    }
    // Computes in single precision, then rounds to the nearest number of the type.
    std::vector<float> result = to_channels_last(parts.compute(reads));
    if (is_narrow(parts.write.data_type)) {
      narrow_in_place(parts.write.data_type, reinterpret_cast<std::byte*>(result.data()), result.size());
    }
    std::memcpy(pointer_to<void>(call.write.begin), result.data(), call.write.bytes);
  }

  static std::span<const std::byte> bytes_at(const AddressRange& range) {
    return {pointer_to<const std::byte>(range.begin), range.bytes};
  }

  void require(bool kept, const std::string& what) const {
    if (!kept) {
      throw DeviceError("fake vendor library: " + parts_->name + ": " + what);
    }
  }

  void check_operand(const AddressRange& range, const TensorType& type) const {
    require(range.begin % kOperandAlignment == 0, "misaligned operand");
    require(range.bytes == type.bytes(), std::to_string(range.bytes) + " bytes for an operand of " +
                                             to_string(type.dims) + " in " + to_string(type.data_type));
  }

  void check(const VendorOperands& operands) const {
    require(operands.reads.size() == parts_->reads.size(), "wrong number of operands");
    for (std::size_t i = 0; i < parts_->reads.size(); ++i) {
      check_operand(operands.reads[i], parts_->reads[i]);
      require(!operands.reads[i].overlaps(operands.write), "a read overlaps the write");
      require(!operands.reads[i].overlaps(operands.workspace), "a read overlaps the workspace");
    }
    check_operand(operands.write, parts_->write);
    require(!operands.write.overlaps(operands.workspace), "the write overlaps the workspace");
    require(operands.workspace.begin % kWorkspaceAlignment == 0, "misaligned workspace");
    require(operands.workspace.bytes == parts_->workspace_bytes,
            "workspace of " + std::to_string(operands.workspace.bytes) + " bytes, asked for " +
                std::to_string(parts_->workspace_bytes));
  }

  std::shared_ptr<const Parts> parts_;  // shared with launches that have not run
  FakeVendorLibrary::Record record_;
  HostLaunch launch_;
};

class FakeEngines final : public cuda::EngineSource {
 public:
  std::vector<cuda::Engine> do_list(const cuda::EngineQuestion& question) const override {
    // The workspace depends on the batch and the input channels, so it differs from convolution to
    // convolution.
    const ops::Convolution& c = question.convolution;
    const std::uint64_t workspace = round_up(static_cast<std::uint64_t>(c.batch * c.input_channels) * 4, 256);
    return {{.name = fake_engine_name("large", question.elements), .workspace_bytes = workspace},
            {.name = fake_engine_name("small", question.elements)}};
  }
  std::string name() const override { return "fake engines"; }
};

Dims joined(Dims front, const Dims& space) {
  front.insert(front.end(), space.begin(), space.end());
  return front;
}

// Adds products of a pass to `write`, the operand that is not read.
void add_products(std::span<const reference::Product> products, Direction direction,
                  const std::vector<Array>& reads, Array& write) {
  const double* const a = reads[0].data.data();
  const double* const b = reads[1].data.data();
  double* const sums = write.data.data();
  switch (direction) {
    case Direction::kForward:
      for (const reference::Product& each : products) {
        sums[each.output] += a[each.input] * b[each.weight];
      }
      break;
    case Direction::kBackwardData:
      for (const reference::Product& each : products) {
        sums[each.input] += a[each.output] * b[each.weight];
      }
      break;
    default:
      for (const reference::Product& each : products) {
        sums[each.weight] += a[each.input] * b[each.output];
      }
  }
}

Array product(const cuda::MatrixProduct& p, const Array& a, const Array& b) {
  Array c({p.rows, p.columns});
  const auto rows = static_cast<std::size_t>(p.rows);
  const auto columns = static_cast<std::size_t>(p.columns);
  const auto inner = static_cast<std::size_t>(p.inner);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      for (std::size_t k = 0; k < inner; ++k) {
        c.data[i * columns + j] += a.data[p.transposed_a ? k * rows + i : i * inner + k] *
                                   b.data[p.transposed_b ? j * inner + k : k * columns + j];
      }
    }
  }
  return c;
}

Array pooled(const PoolingSpec& spec, bool forward, const std::vector<Array>& reads) {
  const reference::Window window{spec.kernel, spec.stride, spec.padding, {}};
  const bool max = spec.mode == PoolingMode::kMax;
  if (forward) {
    return max ? reference::max_pooling(reads[0], window)
               : reference::average_pooling(reads[0], window).value;
  }
  return max ? reference::max_pooling_backward(reads[0], reads[2], window).value
             : reference::average_pooling_backward(reads[0].dims, reads[2], window).value;
}

// The types of the maps that the pass reads: X, or X, Y and dY.
std::vector<TensorType> map_reads(Direction direction, const TensorType& x, const TensorType& y) {
  return direction == Direction::kForward ? std::vector<TensorType>{x} : std::vector<TensorType>{x, y, y};
}

void require_floating(const std::string& what, DataType type) {
  if (!is_floating(type)) {
    throw DeviceError("fake vendor library: " + what + " of " + to_string(type));
  }
}

// Requires the types of cuBLASLt's table for sums in fp32.
void require_types(const cuda::MatrixProduct& p) {
  require_floating("matrix product", p.factors);
  if ((p.result != p.factors && p.result != DataType::kF32) || (p.tf32 && p.factors != DataType::kF32)) {
    throw DeviceError(std::string("fake vendor library: no product of ") + to_string(p.factors) + " in " +
                      to_string(p.result) + (p.tf32 ? " by way of TF32" : ""));
  }
}

}  // namespace

std::string fake_engine_name(const std::string& name, DataType elements) {
  return is_narrow(elements) ? name + " of " + to_string(elements) : name;
}

std::shared_ptr<const cuda::EngineSource> make_fake_engines() {
  return std::make_shared<FakeEngines>();
}

FakeVendorLibrary::FakeVendorLibrary(HostLaunch launch)
    : engines_(make_fake_engines()),
      record_([calls = calls_](const VendorCall& call) { calls->push_back(call); }),
      launch_(std::move(launch)) {}

std::unique_ptr<cuda::VendorOp> FakeVendorLibrary::convolution(const cuda::EngineQuestion& question,
                                                               const std::string& engine) {
  require_floating("convolution", question.elements);
  const std::vector<cuda::Engine> engines = engines_->list(question);
  const auto chosen = std::ranges::find(engines, engine, &cuda::Engine::name);
  const ops::Convolution& c = question.convolution;
  if (chosen == engines.end() || c.input.size() < 2) {
    throw DeviceError("fake vendor library: " + to_string(question) + ": no engine " + engine);
  }
  const Dims x = joined({c.batch, c.input_channels}, c.input);
  const Dims y = joined({c.batch, c.output_channels}, c.output);
  const Dims w = joined({c.output_channels, c.input_channels / c.groups}, c.kernel);
  const reference::Window window{c.kernel, c.stride, c.padding, ops::dilation_of(c)};
  FakeOp::Parts parts{.name = "convolution " + engine, .workspace_bytes = chosen->workspace_bytes};
  const auto typed = [&](const Dims& dims) {
    return TensorType{.data_type = question.elements, .dims = dims};
  };
  switch (question.direction) {
    case Direction::kForward:
      parts.reads = {typed(x), typed(w)};
      parts.write = typed(y);
      break;
    case Direction::kBackwardData:
      parts.reads = {typed(y), typed(w)};
      parts.write = typed(x);
      break;
    default:
      parts.reads = {typed(x), typed(y)};
      parts.write = typed(w);
  }
  parts.compute = [x, w, window, direction = question.direction,
                   write = parts.write.dims](const std::vector<Array>& reads) {
    Array result(write);
    reference::visit_products(x, w, window, [&](std::span<const reference::Product> products) {
      add_products(products, direction, reads, result);
    });
    return result;
  };
  return std::make_unique<FakeOp>(std::move(parts), record_, launch_);
}

std::unique_ptr<cuda::VendorOp> FakeVendorLibrary::matrix_product(const cuda::MatrixProduct& p) {
  require_types(p);
  const auto factor = [&](bool transposed, std::int64_t rows, std::int64_t columns) {
    return TensorType{.data_type = p.factors, .dims = transposed ? Dims{columns, rows} : Dims{rows, columns}};
  };
  return std::make_unique<FakeOp>(
      FakeOp::Parts{
          .name = "matrix product",
          .reads = {factor(p.transposed_a, p.rows, p.inner), factor(p.transposed_b, p.inner, p.columns)},
          .write = {.data_type = p.result, .dims = {p.rows, p.columns}},
          .workspace_bytes = p.most_workspace_bytes / 2,
          .compute = [p](const std::vector<Array>& reads) { return product(p, reads[0], reads[1]); }},
      record_, launch_);
}

std::unique_ptr<cuda::VendorOp> FakeVendorLibrary::pooling(const cuda::PoolingProblem& problem) {
  require_floating("pooling", problem.elements);
  const bool forward = problem.direction == Direction::kForward;
  const TensorType x{.data_type = problem.elements, .dims = problem.x};
  const TensorType y{.data_type = problem.elements, .dims = problem.y};
  return std::make_unique<FakeOp>(
      FakeOp::Parts{.name = "pooling",
                    .reads = map_reads(problem.direction, x, y),
                    .write = forward ? y : x,
                    .compute = [spec = problem.spec, forward](
                                   const std::vector<Array>& reads) { return pooled(spec, forward, reads); }},
      record_, launch_);
}

std::unique_ptr<cuda::VendorOp> FakeVendorLibrary::lrn(const cuda::LrnProblem& problem) {
  const bool forward = problem.direction == Direction::kForward;
  const TensorType x{.dims = problem.x};
  return std::make_unique<FakeOp>(
      FakeOp::Parts{.name = "lrn",
                    .reads = map_reads(problem.direction, x, x),
                    .write = x,
                    .compute =
                        [spec = problem.spec, forward](const std::vector<Array>& reads) {
                          return forward ? reference::lrn(reads[0], spec).value
                                         : reference::lrn_backward(reads[0], reads[2], spec).value;
                        }},
      record_, launch_);
}

}  // namespace vdnn::testing
