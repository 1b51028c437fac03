// libvdnn_stash.so with one mistake, which tests must notice. VDNN_STASH_MUTANT names the mistake; without
// that variable there is none. All code is the library's own. The mistake is in the device, or in how the
// caller names contents.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/environment.h"
#include "tests/stash/stash_mutants.h"
#include "vdnn/error.h"
#include "vdnn/stash.h"
#include "vdnn/stash_backend.h"

namespace vdnn {
namespace {

using testing::ForwardingStashBackend;

constexpr std::string_view kIdentityByAddress = "IdentityByAddress";
constexpr std::string_view kVersionIgnored = "VersionIgnored";
constexpr std::string_view kDecidesByPolling = "DecidesByPolling";
constexpr std::array kOthers{kIdentityByAddress, kVersionIgnored, kDecidesByPolling};

// True during a put, in which the stash decides whether the tensor leaves.
thread_local bool is_putting = false;

// A tensor stays on the device if a copy happens to be in flight during its put.
class DecidesByPolling final : public ForwardingStashBackend {
 public:
  using ForwardingStashBackend::ForwardingStashBackend;

  bool is_capturing(StreamHandle stream) override {
    return (is_putting && is_copying()) || ForwardingStashBackend::is_capturing(stream);
  }
  void copy_out(AddressRange block, AddressRange source, const StashIdentity& contents) override {
    nanoseconds_before_ = times().copy_nanoseconds;
    has_copied_ = true;
    ForwardingStashBackend::copy_out(block, source, contents);
  }

 private:
  bool is_copying() { return has_copied_ && times().copy_nanoseconds == nanoseconds_before_; }

  std::atomic<bool> has_copied_{false};
  std::atomic<std::uint64_t> nanoseconds_before_{0};
};

const testing::DroppedWait* dropped_wait(std::string_view mutant) {
  const auto* const found = std::ranges::find(testing::kDroppedWaits, mutant, &testing::DroppedWait::name);
  return found == std::end(testing::kDroppedWaits) ? nullptr : found;
}

std::string checked_mutant() {
  const std::string mutant = environment("VDNN_STASH_MUTANT").value_or("");
  if (!mutant.empty() && dropped_wait(mutant) == nullptr &&
      std::ranges::find(kOthers, mutant) == kOthers.end()) {
    throw InvalidArgument("there is no mutant " + mutant);
  }
  return mutant;
}

const std::string& mutant() {
  static const std::string name = checked_mutant();
  return name;
}

std::unique_ptr<StashBackend> mutated(std::unique_ptr<StashBackend> backend) {
  if (const testing::DroppedWait* const dropped = dropped_wait(mutant())) {
    return std::make_unique<testing::WithoutWait>(std::move(backend), *dropped);
  }
  return mutant() == kDecidesByPolling ? std::make_unique<DecidesByPolling>(std::move(backend))
                                       : std::move(backend);
}

std::unique_ptr<StashBackend> make_mutated_host_backend(std::optional<std::uint64_t> delay_seed) {
  return mutated(make_host_stash_backend(delay_seed));
}

// Only a backend that times its copies reports which are done.
std::unique_ptr<StashBackend> make_mutated_cuda_backend(int ordinal, bool timed) {
  return mutated(make_cuda_stash_backend(ordinal, timed || mutant() == kDecidesByPolling));
}

}  // namespace
}  // namespace vdnn

// The library's interface over mutated devices. The vdnn_stash_put() below calls its put.
#define make_host_stash_backend make_mutated_host_backend
#define make_cuda_stash_backend make_mutated_cuda_backend
#define vdnn_stash_put put_unmutated
#include "src/stash/stash_abi.cpp"
#undef vdnn_stash_put

extern "C" {

vdnn_status vdnn_stash_put(vdnn_stash* stash, const void* source, uint64_t bytes, void* stream,
                           uint64_t storage, uint64_t version, uint64_t signature, uint64_t in_use_bytes,
                           vdnn_stash_handle* handle, uint32_t* answer) {
  const bool by_address = vdnn::mutant() == vdnn::kIdentityByAddress;
  const bool without_version = vdnn::mutant() == vdnn::kVersionIgnored;
  vdnn::is_putting = true;
  const vdnn_status status = put_unmutated(
      stash, source, bytes, stream, by_address ? reinterpret_cast<std::uintptr_t>(source) : storage,
      without_version ? 0 : version, signature, in_use_bytes, handle, answer);
  vdnn::is_putting = false;
  return status;
}

// The names of all mutants, one per line, so that a test of all mutants cannot forget one.
const char* vdnn_stash_mutants() {
  static const std::string names = [] {
    std::string lines;
    for (const vdnn::testing::DroppedWait& wait : vdnn::testing::kDroppedWaits) {
      lines += std::string(wait.name) + '\n';
    }
    for (const std::string_view name : vdnn::kOthers) {
      lines += std::string(name) + '\n';
    }
    return lines;
  }();
  return names.c_str();
}
}
