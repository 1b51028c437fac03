#include "tests/ops/staged_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn::testing {

namespace {

constexpr std::uint64_t kAlignment = 512;  // of operands, and the smallest distance of two
constexpr int kPattern = 0x5a;

// Host and device memory of one size, copied as a whole.
class Mirror {
 public:
  explicit Mirror(std::unique_ptr<Device> device)
      : device_(std::move(device)), stream_(device_->create_stream("ops")) {}
  ~Mirror() { give_back(); }
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  void hold(std::uint64_t bytes) {
    const std::uint64_t rounded = round_up(bytes, device_->properties().granule_bytes);
    if (on_device_ && on_device_->bytes >= rounded) {
      return;
    }
    give_back();
    on_host_ = device_->allocate_pinned(rounded);
    const AddressRange reserved = device_->reserve(rounded);
    device_->commit(reserved);
    on_device_ = reserved;
  }

  void to_device() { copy(CopyDirection::kHostToDevice, *on_device_, *on_host_); }
  void to_host() {
    copy(CopyDirection::kDeviceToHost, *on_host_, *on_device_);
    device_->synchronize_all();
  }
  void submit(const std::function<void(void*)>& run) {
    const Access everything{.range = *on_device_};
    device_->submit(stream_, {.name = "op", .writes = std::span(&everything, 1), .run = run});
  }

  std::byte* host(std::uint64_t offset) const { return pointer_to<std::byte>(on_host_->begin + offset); }
  std::uint64_t device_address(std::uint64_t offset) const { return on_device_->begin + offset; }
  std::uint64_t bytes() const { return on_host_->bytes; }

 private:
  void copy(CopyDirection direction, AddressRange to, AddressRange from) {
    device_->copy(stream_, {.name = "operands",
                            .direction = direction,
                            .destination = {.range = to},
                            .source = {.range = from}});
  }

  void give_back() {
    if (on_host_) {
      device_->free_pinned(*on_host_);
    }
    if (on_device_) {
      device_->decommit(*on_device_);
      device_->unreserve(*on_device_);
    }
    on_host_.reset();
    on_device_.reset();
  }

  std::unique_ptr<Device> device_;
  StreamId stream_;
  std::optional<AddressRange> on_host_;
  std::optional<AddressRange> on_device_;
};

// The places of one run's operands in a mirror.
class Layout {
 public:
  struct Piece {
    AddressRange range;  // the test's own operand
    std::uint64_t offset = 0;
    bool written = false;
  };

  void add(AddressRange range, bool written) {
    const auto known = std::ranges::find(pieces_, range, &Piece::range);
    if (known != pieces_.end()) {  // the op overwrites it in place
      known->written = known->written || written;
      return;
    }
    pieces_.push_back({.range = range, .offset = end_, .written = written});
    end_ = round_up(end_ + range.bytes, kAlignment) + kAlignment;
  }

  AddressRange at(const Mirror& mirror, AddressRange range) const {
    const auto known = std::ranges::find(pieces_, range, &Piece::range);
    return {.begin = mirror.device_address(known->offset), .bytes = range.bytes};
  }

  std::uint64_t bytes() const { return end_; }

  void fill(const Mirror& mirror) const {
    std::memset(mirror.host(0), kPattern, mirror.bytes());
    for (const Piece& piece : pieces_) {
      copy_bytes(mirror.host(piece.offset), pointer_to<const std::byte>(piece.range.begin),
                 piece.range.bytes);
    }
  }

  // Copies the results back after the op and checks the patterns.
  void take(const Mirror& mirror) const {
    std::uint64_t end = 0;
    for (const Piece& piece : pieces_) {
      expect_pattern(mirror, end, piece.offset);
      end = piece.offset + piece.range.bytes;
      if (piece.written) {
        copy_bytes(pointer_to<std::byte>(piece.range.begin), mirror.host(piece.offset), piece.range.bytes);
      } else if (piece.range.bytes != 0) {
        EXPECT_EQ(std::memcmp(pointer_to<const std::byte>(piece.range.begin), mirror.host(piece.offset),
                              piece.range.bytes),
                  0)
            << "the op wrote into an operand that it only reads";
      }
    }
    expect_pattern(mirror, end, mirror.bytes());
  }

 private:
  static void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes) {
    if (bytes != 0) {
      std::memcpy(to, from, bytes);
    }
  }
  static void expect_pattern(const Mirror& mirror, std::uint64_t begin, std::uint64_t end) {
    // Compares each byte with the next one, since a loop over bytes is slow at -Og.
    const std::byte* const first = mirror.host(begin);
    const bool same = begin == end || (*first == static_cast<std::byte>(kPattern) &&
                                       std::memcmp(first, first + 1, end - begin - 1) == 0);
    EXPECT_TRUE(same) << "the op wrote beside an operand";
  }

  std::uint64_t end_ = kAlignment;  // leaves a pattern in front of the first piece
  std::vector<Piece> pieces_;
};

class StagedProgram final : public OpProgram {
 public:
  StagedProgram(Mirror& mirror, std::unique_ptr<OpProgram> program)
      : mirror_(mirror), program_(std::move(program)) {}

  void run(OpId op, const OpOperands& operands, const StepScalars& scalars, void*) override {
    Layout layout;
    const auto add = [&layout](std::span<const AddressRange> ranges, bool written) {
      std::ranges::for_each(ranges, [&](AddressRange range) { layout.add(range, written); });
    };
    add(operands.reads, false);
    add(operands.writes, true);
    add(std::span(&operands.workspace, 1), true);
    mirror_.hold(layout.bytes());
    layout.fill(mirror_);
    const auto placed = [&](std::span<const AddressRange> ranges) {
      std::vector<AddressRange> there;
      std::ranges::transform(ranges, std::back_inserter(there),
                             [&](AddressRange range) { return layout.at(mirror_, range); });
      return there;
    };
    const std::vector<AddressRange> reads = placed(operands.reads);
    const std::vector<AddressRange> writes = placed(operands.writes);
    mirror_.to_device();
    mirror_.submit([&](void* stream) {
      program_->run(op,
                    {.reads = reads, .writes = writes, .workspace = layout.at(mirror_, operands.workspace)},
                    scalars, stream);
    });
    mirror_.to_host();
    layout.take(mirror_);
  }
  void pack_parameter(std::uint32_t parameter, std::span<const float> logical, void* storage) override {
    program_->pack_parameter(parameter, logical, storage);
  }
  void unpack_parameter(std::uint32_t parameter, const void* storage, std::span<float> logical) override {
    program_->unpack_parameter(parameter, storage, logical);
  }

 private:
  Mirror& mirror_;
  std::unique_ptr<OpProgram> program_;
};

class StagedOps final : public OpLibrary {
 public:
  explicit StagedOps(GpuSystem& gpus) : mirror_(gpus.make_device({})), library_(gpus.make_ops(0, {})) {}

  const OpCatalog& catalog() const override { return library_->catalog(); }
  std::unique_ptr<OpProgram> compile(const Tape& tape, std::span<const std::uint32_t> algorithms) override {
    return std::make_unique<StagedProgram>(mirror_, library_->compile(tape, algorithms));
  }

 private:
  Mirror mirror_;
  std::shared_ptr<OpLibrary> library_;
};

}  // namespace

std::unique_ptr<OpLibrary> make_staged_ops(GpuSystem& gpus) {
  return std::make_unique<StagedOps>(gpus);
}

}  // namespace vdnn::testing
