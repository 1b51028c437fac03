#include "tests/fakes/recording_cuda_ops.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "src/ops/cuda/cuda_ops.h"
#include "streams/sim/findings.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_vendor_library.h"
#include "tests/fakes/watched_ops.h"
#include "vdnn/error.h"

namespace vdnn::testing {

namespace {

// The operands of the running op; checks whether ranges that the op passes on lie in them.
class RunningOp {
 public:
  void begin(const std::string& name, const OpOperands& operands, void* stream) {
    name_ = name;
    stream_ = stream;
    reads_.assign(operands.reads.begin(), operands.reads.end());
    if (operands.step_numbers != 0) {
      reads_.push_back({.begin = operands.step_numbers, .bytes = kStepNumbersBytes});
    }
    writes_.assign(operands.writes.begin(), operands.writes.end());
    writes_.push_back(operands.workspace);
    declare_on_fake_cuda(name, operands, stream);
  }

  // `user` is the recipient of the stream.
  void check_stream(const void* stream, const std::string& user) const {
    if (stream != stream_) {
      refuse(user + " runs on another stream than the op's");
    }
  }
  void check_read(AddressRange range, const std::string& user) const {
    if (!lies_in(reads_, range) && !lies_in(writes_, range)) {
      refuse(user + " reads outside of the op's operands: " + format_range(range));
    }
  }
  void check_write(AddressRange range, const std::string& user) const {
    if (!lies_in(writes_, range)) {
      refuse(user + " writes outside of what the op writes: " + format_range(range));
    }
  }
  // Checks every word that looks like an address of a GPU's memory.
  void check_words(const std::byte* words, std::size_t bytes, const std::string& user) const {
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes; at += sizeof(std::uint64_t)) {
      AddressRange first{.bytes = 1};
      std::memcpy(&first.begin, words + at, sizeof(first.begin));
      if (FakeCuda::is_device_address(stream_, first.begin)) {
        check_read(first, user);
      }
    }
  }

 private:
  static bool lies_in(const std::vector<AddressRange>& operands, AddressRange range) {
    return std::ranges::any_of(operands,
                               [&](const AddressRange& operand) { return operand.contains(range); });
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw DeviceError("op '" + name_ + "': " + what);
  }

  std::string name_;
  void* stream_ = nullptr;
  std::vector<AddressRange> reads_;
  std::vector<AddressRange> writes_;  // the workspace last
};

class RecordedKernels final : public cuda::KernelTable {
 public:
  explicit RecordedKernels(std::shared_ptr<const RunningOp> op) : op_(std::move(op)) {}

  void launch(const cuda::Kernel& kernel, void* stream) const override {
    std::visit(
        [&](const auto& known) {
          const std::string name = std::string("kernel ") + known.kName;
          op_->check_stream(stream, name);
          check_addresses(known, name);
        },
        kernel);
  }

 private:
  template <class Known>
  void check_addresses(Known kernel, const std::string& name) const {
// clang has no builtin to clear padding, whose bytes are arbitrary and may look like addresses.
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&kernel);
    op_->check_words(reinterpret_cast<const std::byte*>(&kernel), sizeof(kernel), name);
#endif
  }

  std::shared_ptr<const RunningOp> op_;
};

class RecordingProgram final : public WatchedProgram {
 public:
  using WatchedProgram::WatchedProgram;

  // Does nothing, since page-locked memory may be logical, too.
  void write_step_numbers(const StepScalars&, std::span<std::byte, kStepNumbersBytes>) const override {}

  // The contents of parameters do not matter.
  void pack_parameter(std::uint32_t, std::span<const float>, void*) override {}
  void unpack_parameter(std::uint32_t, const void*, std::span<float>) override {}
};

class RecordingOps final : public OpLibrary {
 public:
  explicit RecordingOps(const std::shared_ptr<const cuda::EngineSource>& engines) {
    const auto record = [op = std::as_const(op_)](const VendorCall& call) {
      op->check_stream(call.stream, call.name);
      for (const AddressRange& read : call.reads) {
        op->check_read(read, call.name);
      }
      op->check_write(call.write, call.name);
      op->check_write(call.workspace, call.name);
    };
    library_ = cuda::make_cuda_ops({.kernels = std::make_shared<RecordedKernels>(op_),
                                    .vendor = std::make_shared<FakeVendorLibrary>(engines, record),
                                    .engines = engines});
  }

  const OpCatalog& catalog() const override { return library_->catalog(); }
  std::unique_ptr<OpProgram> compile(const Tape& tape, std::span<const std::uint32_t> algorithms) override {
    return std::make_unique<RecordingProgram>(
        library_->compile(tape, algorithms), tape,
        [op = op_](const std::string& name, const OpOperands& operands, void* stream) {
          op->begin(name, operands, stream);
        });
  }

 private:
  std::shared_ptr<RunningOp> op_ = std::make_shared<RunningOp>();
  std::unique_ptr<OpLibrary> library_;
};

}  // namespace

std::unique_ptr<OpLibrary> make_recording_cuda_ops(const std::shared_ptr<const cuda::EngineSource>& engines) {
  return std::make_unique<RecordingOps>(engines);
}

}  // namespace vdnn::testing
