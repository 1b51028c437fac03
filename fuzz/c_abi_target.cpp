// Checks any sequence of calls of the C interface against a naive model: blocks in use never overlap,
// statuses follow the header, figures are exact, and nothing leaks.
//
// The input is one byte of options, then three bytes per call: the call, and a 16-bit number.

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/dropin/c_abi.h"
#include "fuzz/target.h"
#include "src/base/random.h"
#include "vdnn/cpu_device.h"

namespace vdnn::fuzz {

namespace {

constexpr std::uint64_t kBudget = std::uint64_t{1} << 20;
constexpr StreamId kStreams = 2;
constexpr std::size_t kCallBytes = 3;

void require_status(vdnn_status found, vdnn_status expected, const std::string& call) {
  require(found == expected, call + ": expected " + vdnn_status_name(expected) + ", found " +
                                 vdnn_status_name(found) + ": " + vdnn_last_error());
}

class Calls {
 public:
  explicit Calls(std::uint8_t options) {
    for (StreamId stream = 0; stream < kStreams; ++stream) {
      device_->create_stream("stream " + std::to_string(stream));
    }
    vdnn_allocator_options given;
    require_status(vdnn_allocator_options_init(&given, VDNN_ALLOCATOR_VERSION), VDNN_OK, "options_init");
    given.cache_bytes = (options & 1) != 0 ? 0 : kBudget / 8;
    given.high_water_bytes = (options & 2) != 0 ? kBudget / 2 : 0;
    given.ends_are_told = (options & 4) != 0 ? 1 : 0;
    given.small_bytes = (options & 8) != 0 ? 4096 : 65536;
    if ((options & 16) != 0) {
      given.on_exhausted = [](void* self, std::uint64_t) {
        return static_cast<Calls*>(self)->free_first() ? 1 : 0;
      };
      given.user_data = this;
    }
    require_status(create_allocator(make_pool_backend(*device_), &given, &allocator_), VDNN_OK, "create");
  }
  ~Calls() { vdnn_allocator_destroy(allocator_); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  void call(std::uint8_t which, std::uint16_t number) {
    switch (which % 10) {
      case 0:
      case 1:
        return allocate(number, which % 10 == 1 ? VDNN_PERSISTENT : VDNN_TRANSIENT, (which / 10) % 4 == 3);
      case 2:
      case 3:
        return free(number, which / 10);
      case 4:
        return use(number);
      case 5:
        return require_status(vdnn_allocator_forget_stream(allocator_, stream(number)), VDNN_OK, "forget");
      case 6:
        return trim(number);
      case 7:
        return require_status(vdnn_allocator_reset_peaks(allocator_), VDNN_OK, "reset_peaks");
      case 8:
        return report(number);
      default:
        return ask(number);
    }
  }

  void finish() {
    check();
    while (free_first()) {
    }
    std::uint64_t released = 0;
    require_status(vdnn_allocator_trim(allocator_, 0, &released), VDNN_OK, "trim");
    require(statistics().all.reserved.current == 0, "trim releases all free memory");
    require_status(vdnn_allocator_destroy(allocator_), VDNN_OK, "destroy");
    allocator_ = nullptr;
    require(device_->counters().committed_bytes == 0, "destroy releases all memory");
  }

 private:
  static StreamHandle stream(std::uint16_t number) { return stream_handle(number % kStreams); }

  vdnn_allocator_statistics statistics() {
    vdnn_allocator_statistics found{.version = VDNN_ALLOCATOR_VERSION};
    require_status(vdnn_allocator_get_statistics(allocator_, &found), VDNN_OK, "statistics");
    return found;
  }

  // Sizes of every magnitude up to 2^64.
  static std::uint64_t size_of(std::uint16_t number) {
    const std::uint64_t digits = number & 0xff;
    const unsigned shift = (number >> 8) % 20;
    return shift == 19 ? ~digits : digits << shift;
  }

  // The address of a block in use, of a freed block, inside a block, or of foreign memory.
  std::uint64_t address_of(std::uint16_t number) const {
    const std::uint16_t choice = number / 8;
    if (number % 8 == 7) {
      return reinterpret_cast<std::uintptr_t>(this);
    }
    if (number % 8 == 6 && !freed_.empty()) {
      return freed_[choice % freed_.size()];
    }
    if (live_.empty()) {
      return 1;
    }
    const std::uint64_t address = std::next(live_.begin(), choice % live_.size())->first;
    return number % 8 == 5 ? address + 1 : address;
  }

  void allocate(std::uint16_t number, vdnn_block_life life, bool ready) {
    const std::uint64_t bytes = size_of(number);
    void* block = nullptr;
    const vdnn_status status = ready
                                   ? vdnn_allocator_allocate_ready(allocator_, bytes, life, &block)
                                   : vdnn_allocator_allocate(allocator_, bytes, stream(number), life, &block);
    require(status == VDNN_OK || status == VDNN_OUT_OF_MEMORY,
            std::string("allocate: ") + vdnn_status_name(status));
    require((status == VDNN_OK) == (block != nullptr), "an address exactly if there is a block");
    if (status != VDNN_OK) {
      return;
    }
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(block);
    const std::uint64_t given = std::max<std::uint64_t>(bytes, 1);
    const auto next = live_.lower_bound(address);
    require(next == live_.end() || address + given <= next->first, "no overlap with the next block");
    require(next == live_.begin() || std::prev(next)->first + std::prev(next)->second <= address,
            "no overlap with the previous block");
    live_.emplace(address, given);
    std::uint64_t found = 0;
    require_status(vdnn_allocator_block_bytes(allocator_, block, &found), VDNN_OK, "block_bytes");
    require(found == given, "a block has the requested size");
  }

  void free(std::uint16_t number, unsigned way) {
    const std::uint64_t address = address_of(number);
    const bool known = live_.contains(address);
    void* const block = pointer_to<void>(address);
    const vdnn_status status = way % 3 == 0   ? vdnn_allocator_free(allocator_, block)
                               : way % 3 == 1 ? vdnn_allocator_free_on(allocator_, block, stream(number))
                                              : vdnn_allocator_free_idle(allocator_, block);
    require_status(status, known ? VDNN_OK : VDNN_INVALID_ARGUMENT, "free");
    forget(address);
  }

  void forget(std::uint64_t address) {
    if (live_.erase(address) > 0) {
      freed_.push_back(address);
    }
  }

  bool free_first() {
    if (live_.empty()) {
      return false;
    }
    const std::uint64_t address = live_.begin()->first;
    require_status(vdnn_allocator_free(allocator_, pointer_to<void>(address)), VDNN_OK, "free");
    forget(address);
    return true;
  }

  void use(std::uint16_t number) {
    const std::uint64_t address = address_of(number);
    require_status(vdnn_allocator_used_on(allocator_, pointer_to<void>(address), stream(number / 8)),
                   live_.contains(address) ? VDNN_OK : VDNN_INVALID_ARGUMENT, "used_on");
  }

  void trim(std::uint16_t number) {
    const std::uint64_t before = statistics().all.reserved.current;
    std::uint64_t released = 0;
    require_status(vdnn_allocator_trim(allocator_, size_of(number), &released), VDNN_OK, "trim");
    require(before - statistics().all.reserved.current == released,
            "trim reports the bytes that it has released");
  }

  void report(std::uint16_t number) {
    std::array<char, 64> text{};
    text.fill('?');
    const std::uint64_t capacity = number % text.size();
    std::uint64_t needed = 0;
    const auto give = (number & 0x8000) != 0 ? vdnn_allocator_picture : vdnn_allocator_snapshot;
    require_status(give(allocator_, text.data(), capacity, &needed), VDNN_OK, "text");
    require(needed > text.size(), "the needed capacity is reported");
    require(capacity == 0 || text.at(capacity - 1) == '\0', "a text ends where the buffer ends");
    require(text.at(capacity) == '?', "nothing is written beyond the buffer");
  }

  void ask(std::uint16_t number) {
    const std::uint64_t address = address_of(number);
    int owns = 0;
    require_status(vdnn_allocator_owns(allocator_, pointer_to<void>(address), &owns), VDNN_OK, "owns");
    require(owns == 1 || !live_.contains(address), "the pool owns every block in use");
    std::uint64_t bytes = 0;
    require_status(vdnn_allocator_block_bytes(allocator_, pointer_to<void>(address), &bytes),
                   live_.contains(address) ? VDNN_OK : VDNN_INVALID_ARGUMENT, "block_bytes");
    check();
  }

  void check() {
    const vdnn_allocator_statistics found = statistics();
    std::uint64_t bytes = 0;
    for (const auto& [address, size] : live_) {
      bytes += size;
    }
    require(found.all.blocks.current == live_.size(), "every block in use is counted");
    require(found.all.requested.current == bytes, "requested bytes are counted");
    require(found.all.blocks.removed == freed_.size(), "frees are counted");
    require(found.all.allocated.current >= bytes && found.all.reserved.current >= found.all.active.current &&
                found.all.active.current >= found.all.allocated.current,
            "reserved >= active >= allocated >= requested");
    require(found.all.reserved.peak <= kBudget, "the peak is within the budget");
  }

  std::unique_ptr<Device> device_ = make_cpu_device({.budget_bytes = kBudget});
  vdnn_allocator* allocator_ = nullptr;
  std::map<std::uint64_t, std::uint64_t> live_;  // size by address
  std::vector<std::uint64_t> freed_;
};

}  // namespace

bool run_c_abi(Input input) {
  if (input.empty() || (input.size() - 1) % kCallBytes != 0) {
    return false;
  }
  Calls calls(input[0]);
  for (std::size_t at = 1; at < input.size(); at += kCallBytes) {
    calls.call(input[at], static_cast<std::uint16_t>(input[at + 1] | input[at + 2] << 8));
  }
  calls.finish();
  return true;
}

std::vector<Seed> c_abi_seeds() {
  std::vector<Seed> seeds;
  for (const std::uint8_t options : {0, 1, 2, 4, 16, 31}) {
    Bytes bytes{options};
    SplitMix64 random(options);
    for (std::uint64_t call = 0; call < 60 * kCallBytes; ++call) {
      bytes.push_back(static_cast<std::uint8_t>(random.next()));
    }
    seeds.push_back({.name = "options-" + std::to_string(options), .bytes = std::move(bytes)});
  }
  return seeds;
}

}  // namespace vdnn::fuzz
