// Checks any sequence of calls of the stash's C interface against a naive model. Tensors come back as they
// were saved, statuses follow the header, only successful calls write results, figures are exact, and nothing
// leaks. In each run, one arbitrary call of the device may fail. A source is freed as soon as the stash
// releases it, so that the address sanitizer detects a copy that still reads it.
//
// The input is four bytes of options, then three bytes per call: the call, and a 16-bit number.

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/target.h"
#include "src/base/random.h"
#include "src/stash/stash_abi.h"
#include "tests/stash/failing_stash_backend.h"

namespace vdnn::fuzz {

namespace {

constexpr std::size_t kOptionBytes = 4;
constexpr std::size_t kCallBytes = 3;
constexpr std::uint32_t kBatch = 5;  // the most handles per call; small, so that one call is often not enough
// A size that the calling thread copies, two sizes of about one page, and a size that another thread copies.
constexpr std::array<std::uint64_t, 4> kSizes{1, 4000, 4096, 20000};
constexpr std::uint64_t kAbsent = 0xabababababababab;  // marks results that were not written

// Counts of the device's resources that the stash holds.
struct Held {
  std::int64_t blocks = 0;
  std::int64_t events = 0;
};

class CountingStashBackend final : public testing::ForwardingStashBackend {
 public:
  explicit CountingStashBackend(Held& held)
      : ForwardingStashBackend(make_host_stash_backend()), held_(held) {}

  EventHandle record(StreamHandle stream) override {
    ++held_.events;
    return ForwardingStashBackend::record(stream);
  }
  void release(EventHandle event) noexcept override {
    --held_.events;
    ForwardingStashBackend::release(event);
  }
  AddressRange allocate_host(std::uint64_t bytes) override {
    ++held_.blocks;
    return ForwardingStashBackend::allocate_host(bytes);
  }
  void free_host(AddressRange block) override {
    --held_.blocks;
    ForwardingStashBackend::free_host(block);
  }

 private:
  Held& held_;
};

// A storage at one version in the model.
struct Saved {
  std::uint64_t storage = 0;
  std::uint64_t bytes = 0;
  std::uint64_t users = 0;  // puts that have not been dropped
  bool is_sent = false;
  bool is_away = false;          // the stash has released the source
  bool ends_with_ready = false;  // the last read answered VDNN_STASH_LAST: `target` is freed after ready()
  std::unique_ptr<Bytes> source;
  std::unique_ptr<Bytes> target;

  // Whether the memory belongs to another allocator, so that the stash must hold it.
  bool is_foreign() const { return storage % 3 == 0; }
};

class Calls {
 public:
  explicit Calls(Input options) {
    vdnn_stash_options given;
    require_ok(vdnn_stash_options_init(&given, VDNN_STASH_VERSION), "options_init");
    const auto size = [&options](std::size_t index, std::uint64_t unit) {
      return std::uint64_t{options[index]} / 4 * unit;
    };
    given.budget_bytes = size(0, 2000);
    given.host_bytes = size(1, 4096);
    given.ahead_bytes = (options[0] & 1) != 0 ? kSizes[options[1] % 4] : 0;
    given.flight_bytes = (options[0] & 2) != 0 ? kSizes[options[1] % 4] : 0;
    given.release_at_put = options[1] & 1;
    releases_at_put_ = given.release_at_put == 1;
    host_bytes_ = given.host_bytes;
    faults_.fail_at = options[2] | options[3] << 8;
    require_ok(create_stash(std::make_unique<testing::FailingStashBackend>(
                                std::make_unique<CountingStashBackend>(held_), faults_),
                            &given, &stash_),
               "create");
  }
  ~Calls() { vdnn_stash_destroy(stash_); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  void call(std::uint8_t which, std::uint16_t number) {
    const unsigned way = which / 16;
    switch (which % 16) {
      case 0:
      case 1:
      case 2:
        return save(number, way);
      case 3:
        return save_again(number);
      case 4:
      case 5:
        return with_handle(number, [&](vdnn_stash_handle handle) { read(handle, way); });
      case 6:
        return with_handle(number, [&](vdnn_stash_handle handle) { drop(handle); });
      case 7:
        return run_step(number, way);
      case 8:
        return let_leave(way);
      case 9:
        return release();
      case 10:
        return with_handle(number, [&](vdnn_stash_handle handle) { fetch_any(handle); });
      case 11:
        return with_handle(number, [&](vdnn_stash_handle handle) { make_ready(handle); });
      case 12:
        return end(number);
      case 13:
        return refuse(number);
      case 14:
        return ask_texts(number);
      default:
        return check();
    }
  }

  void finish() {
    check();
    faults_.fail_at = 0;
    while (!live_.empty()) {
      drop(live_.begin()->first);
    }
    check();
    require_ok(vdnn_stash_destroy(std::exchange(stash_, nullptr)), "destroy");
    require(held_.blocks == 0, std::to_string(held_.blocks) + " blocks of host memory are left");
    require(held_.events == 0, std::to_string(held_.events) + " events are left");
  }

 private:
  static void require_ok(vdnn_status status, const std::string& call) {
    require(status == VDNN_OK, call + ": " + vdnn_status_name(status) + ": " + vdnn_last_error());
  }
  // Whether a valid call has succeeded. Requires that it fails only if the device has failed.
  bool succeeds(vdnn_status status, const std::string& call) {
    if (status == VDNN_DEVICE_ERROR && !faults_.failed.empty()) {
      faults_.failed.clear();
      return false;
    }
    require_ok(status, call);
    return true;
  }
  void require_refused(vdnn_status status, const std::string& call) {
    require(status == VDNN_INVALID_ARGUMENT, call + ": " + vdnn_status_name(status));
  }

  // Calls `use` with a live handle, a dropped handle, or 0.
  template <class Use>
  void with_handle(std::uint16_t number, const Use& use) {
    if (number % 8 == 7) {
      use(number / 8);
    } else if (!live_.empty()) {
      use(std::next(live_.begin(), number / 8 % static_cast<std::uint16_t>(live_.size()))->first);
    }
  }
  Saved* find(vdnn_stash_handle handle) {
    const auto found = live_.find(handle);
    return found == live_.end() ? nullptr : &found->second;
  }
  Saved& known(vdnn_stash_handle handle, const char* call) {
    Saved* const saved = find(handle);
    if (saved == nullptr) {
      throw Finding(std::string("broken: ") + call + " names a handle that is not alive");
    }
    return *saved;
  }

  // --- contents -------------------------------------------------------------------------------------------

  static std::uint8_t byte_of(std::uint64_t storage, std::size_t index) {
    return static_cast<std::uint8_t>(storage * 31 + index);
  }
  static Saved make_tensor(std::uint64_t storage, std::uint64_t bytes) {
    auto contents = std::make_unique<Bytes>(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      (*contents)[i] = byte_of(storage, i);
    }
    Saved saved;
    saved.storage = storage;
    saved.bytes = bytes;
    saved.source = std::move(contents);
    return saved;
  }
  static void require_contents(const Saved& saved, const Bytes* found) {
    require(found != nullptr, "the stash reports a place with memory");
    require(found->size() == saved.bytes, "a target is as large as its tensor");
    bool is_equal = true;
    for (std::size_t i = 0; i < found->size(); ++i) {
      is_equal = is_equal && (*found)[i] == byte_of(saved.storage, i);
    }
    require(is_equal, "contents come back as they were saved");
  }
  // With release_at_put, the device's allocator would keep the source until its copy is done. The model has
  // no such allocator, so it keeps the source itself.
  void free_source(Saved& saved) {
    if (releases_at_put_ && !saved.is_foreign() && saved.source != nullptr) {
      graveyard_.push_back(std::move(saved.source));
    }
    saved.source.reset();
  }

  // --- saving ---------------------------------------------------------------------------------------------

  void save(std::uint16_t number, unsigned way) {
    const std::uint64_t bytes = kSizes[number % kSizes.size()];
    const std::uint64_t storage = ++storages_;
    put(make_tensor(storage, bytes), number / 4 % 2, (number & 8) != 0, (way & 1) == 0);
  }

  vdnn_stash_handle put(Saved saved, std::uint64_t signature, bool told, bool follows) {
    vdnn_stash_handle handle = kAbsent;
    std::uint32_t answer = 0;
    in_use_ += saved.bytes;
    const vdnn_status status =
        vdnn_stash_put(stash_, saved.source->data(), saved.bytes, nullptr, saved.storage, 0, signature,
                       told ? in_use_ : 0, &handle, &answer);
    if (!succeeds(status, "put")) {
      require(handle == kAbsent && answer == 0, "a put that fails writes nothing");
      in_use_ -= saved.bytes;
      free_source(saved);
      return 0;
    }
    ++puts_;
    const std::uint32_t verdict = answer & VDNN_STASH_VERDICT;
    require(verdict == VDNN_STASH_KEPT || verdict == VDNN_STASH_LEAVES, "new contents are not shared");
    require(handle != 0 && !live_.contains(handle), "new contents get a new handle");
    saved.users = 1;
    note_answer(handle, saved, answer);
    live_.emplace(handle, std::move(saved));
    if (follows) {
      follow(answer);
    }
    return handle;
  }

  void note_answer(vdnn_stash_handle handle, Saved& saved, std::uint32_t answer) {
    if ((answer & VDNN_STASH_VERDICT) == VDNN_STASH_LEAVES && !saved.is_sent) {
      saved.is_sent = true;
      out_bytes_ += saved.bytes;
      if (saved.is_foreign() && releases_at_put_) {
        require_ok(vdnn_stash_hold(stash_, handle), "hold");
        require_refused(vdnn_stash_hold(stash_, handle), "hold again");
      } else if (releases_at_put_) {
        saved.is_away = true;
        free_source(saved);
      }
    }
  }

  void follow(std::uint32_t answer) {
    if ((answer & VDNN_STASH_LEAVING) != 0) {
      let_leave(0);
    }
    if ((answer & VDNN_STASH_RELEASED) != 0) {
      release();
    }
  }

  void save_again(std::uint16_t number) {
    with_handle(number & ~7, [&](vdnn_stash_handle handle) {
      Saved& saved = known(handle, "the model");
      std::uint8_t any = 0;  // 1 if the stash knows the contents
      vdnn_stash_handle found = kAbsent;
      std::uint32_t answer = 0;
      require_ok(vdnn_stash_put(stash_, &any, saved.bytes, nullptr, saved.storage, 0, 0, 0, &found, &answer),
                 "put again");
      require(found == handle && (answer & VDNN_STASH_VERDICT) == VDNN_STASH_SHARED,
              "equal contents have one handle");
      ++puts_;
      ++shared_;
      ++saved.users;
    });
  }

  void let_leave(unsigned way) {
    std::array<vdnn_stash_handle, kBatch> handles{};
    std::uint32_t count = kBatch;
    for (bool full = true; full; full = count == kBatch) {
      if (!succeeds(vdnn_stash_leaving(stash_, handles.data(), kBatch, &count), "leaving")) {
        return;
      }
      require(count <= kBatch, "no more handles than there is room for");
      for (std::uint32_t i = 0; i < count; ++i) {
        Saved& saved = known(handles[i], "leaving");
        require(!saved.is_sent, "a tensor that has left does not leave again");
        if ((way & 1) != 0) {
          require_ok(vdnn_stash_stay(stash_, handles[i]), "stay");
        } else {
          leave(handles[i], saved);
        }
      }
    }
  }

  void leave(vdnn_stash_handle handle, Saved& saved) {
    std::uint32_t answer = 0;
    if (succeeds(vdnn_stash_leave(stash_, handle, nullptr, &answer), "leave")) {
      note_answer(handle, saved, answer);
    }
  }

  void release() {
    std::array<vdnn_stash_handle, kBatch> handles{};
    std::uint32_t count = kBatch;
    for (bool full = true; full; full = count == kBatch) {
      if (!succeeds(vdnn_stash_released(stash_, nullptr, handles.data(), kBatch, &count), "released")) {
        return;
      }
      require(count <= kBatch, "no more handles than there is room for");
      for (std::uint32_t i = 0; i < count; ++i) {
        Saved& saved = known(handles[i], "released");
        require(saved.is_sent && !saved.is_away, "a source is released once, after it was sent");
        saved.is_away = true;
        free_source(saved);
      }
    }
  }

  // --- reading --------------------------------------------------------------------------------------------

  void read(vdnn_stash_handle handle, unsigned way) {
    Saved* const saved = find(handle);
    std::uint32_t answer = 0;
    if (saved == nullptr) {
      require_refused(vdnn_stash_read(stash_, handle, nullptr, 0, 0, &answer), "read");
      require(answer == 0, "a read that is refused writes nothing");
      return;
    }
    const bool held = (way & 2) != 0 && saved->source != nullptr;
    if (!succeeds(vdnn_stash_read(stash_, handle, nullptr, 0, held ? 1 : 0, &answer), "read")) {
      require(answer == 0, "a read that fails writes nothing");
      return;
    }
    require_place(*saved, answer & 7U, held);
    if ((answer & VDNN_STASH_FETCHES) != 0 && (way & 1) == 0) {
      fetch_due(handle, (answer & VDNN_STASH_MISSING) != 0);
    }
    if ((answer & VDNN_STASH_MISSING) != 0) {
      saved->ends_with_ready = (answer & VDNN_STASH_LAST) != 0;
      make_ready(handle);
    } else if ((answer & VDNN_STASH_LAST) != 0) {
      saved->target.reset();
    }
  }

  static void require_place(const Saved& saved, std::uint32_t place, bool held) {
    if (place == VDNN_STASH_IN_PLACE) {
      require(!saved.is_away || (held && saved.target == nullptr),
              "only a tensor that was not released is in place");
      require_contents(saved, saved.source.get());
    } else if (place == VDNN_STASH_BACK) {
      require_contents(saved, saved.target.get());
    } else {
      require(place == VDNN_STASH_MISSING, "a read returns one place");
      require(saved.is_away && saved.target == nullptr && !held, "only a tensor that is away is missing");
    }
  }

  void fetch_due(vdnn_stash_handle reading, bool is_missing) {
    std::array<vdnn_stash_handle, kBatch> handles{};
    std::array<std::uint64_t, kBatch> bytes{};
    std::uint32_t count = kBatch;
    for (bool full = true; full; full = count == kBatch) {
      require_ok(vdnn_stash_fetches(stash_, reading, handles.data(), bytes.data(), kBatch, &count),
                 "fetches");
      require(count <= kBatch, "no more handles than there is room for");
      require(!is_missing || (count > 0 && handles[0] == reading), "the missing tensor is the first");
      for (std::uint32_t i = 0; i < count; ++i) {
        Saved& saved = known(handles[i], "fetches");
        require(bytes.at(i) == saved.bytes, "a fetch has its tensor's size");
        require(saved.is_away && saved.target == nullptr, "only a tensor that is away is to be fetched");
        if (!fetch(handles[i], saved)) {
          return;
        }
      }
      is_missing = false;
    }
  }

  bool fetch(vdnn_stash_handle handle, Saved& saved) {
    auto target = std::make_unique<Bytes>(saved.bytes);
    if (!succeeds(vdnn_stash_fetch(stash_, handle, target->data(), nullptr), "fetch")) {
      return false;
    }
    saved.target = std::move(target);
    in_bytes_ += saved.bytes;
    return true;
  }

  // Fetches a handle that no read has requested.
  void fetch_any(vdnn_stash_handle handle) {
    Saved* const saved = find(handle);
    std::uint8_t any = 0;
    if (saved != nullptr && saved->is_away && saved->target == nullptr) {
      fetch(handle, *saved);
    } else {
      require_refused(vdnn_stash_fetch(stash_, handle, &any, nullptr), "fetch");
      require(any == 0, "a fetch that is refused writes nothing");
    }
  }

  void make_ready(vdnn_stash_handle handle) {
    Saved* const saved = find(handle);
    if (saved == nullptr || saved->target == nullptr) {
      require_refused(vdnn_stash_ready(stash_, handle, nullptr), "ready");
    } else if (succeeds(vdnn_stash_ready(stash_, handle, nullptr), "ready")) {
      require_contents(*saved, saved->target.get());
      if (std::exchange(saved->ends_with_ready, false)) {
        saved->target.reset();
      }
    }
  }

  // --- ends -----------------------------------------------------------------------------------------------

  void drop(vdnn_stash_handle handle) {
    Saved* const saved = find(handle);
    if (saved == nullptr) {
      return require_refused(vdnn_stash_drop(stash_, handle), "drop");
    }
    succeeds(vdnn_stash_drop(stash_, handle), "drop");
    if (--saved->users == 0) {
      in_use_ -= saved->bytes;
      free_source(*saved);
      live_.erase(handle);
    }
  }

  // A step as in training: saves, then reads in reverse order.
  void run_step(std::uint16_t number, unsigned way) {
    const std::uint16_t tensors = 1 + number % 8;
    std::vector<vdnn_stash_handle> handles;
    for (std::uint16_t i = 0; i < tensors; ++i) {
      const std::uint64_t bytes = kSizes[(number >> 3 >> i) % kSizes.size()];
      handles.push_back(put(make_tensor(++storages_, bytes), 0, (number & 0x8000) != 0, true));
    }
    for (auto handle = handles.rbegin(); handle != handles.rend(); ++handle) {
      if (*handle != 0) {
        read(*handle, way & 2);
        drop(*handle);
      }
    }
  }

  void end(std::uint16_t number) {
    if (number % 4 == 0) {
      require_ok(vdnn_stash_forget(stash_), "forget");
    } else {
      succeeds(vdnn_stash_end_step(stash_), "end_step");
    }
  }

  // --- refusals and reports -------------------------------------------------------------------------------

  void refuse(std::uint16_t number) {
    const vdnn_stash_handle dead = number % 2 == 0 ? 0 : std::numeric_limits<std::uint64_t>::max();
    vdnn_stash_handle handle = kAbsent;
    std::uint64_t bytes = kAbsent;
    std::uint32_t word = 7;
    std::uint8_t byte = 0;
    const auto put_with = [&](const void* source, std::uint64_t size, std::uint32_t* answer) {
      return vdnn_stash_put(stash_, source, size, nullptr, 0, 0, 0, 0, &handle, answer);
    };
    require_refused(put_with(nullptr, 1, &word), "put of null");
    require_refused(put_with(&byte, 0, &word), "put of no bytes");
    require_refused(put_with(&byte, 1, nullptr), "put without an answer");
    require_refused(vdnn_stash_leave(stash_, dead, nullptr, &word), "leave");
    require_refused(vdnn_stash_stay(stash_, dead), "stay");
    require_refused(vdnn_stash_read(stash_, dead, nullptr, 0, 0, &word), "read");
    require_refused(vdnn_stash_read(stash_, dead, nullptr, 0, number % 8 + 2, &word), "read, held");
    require_refused(vdnn_stash_fetches(stash_, dead, &handle, &bytes, 1, &word), "fetches");
    require_refused(vdnn_stash_fetches(stash_, dead, &handle, nullptr, 1, &word), "fetches without sizes");
    require_refused(vdnn_stash_fetch(stash_, dead, &byte, nullptr), "fetch");
    require_refused(vdnn_stash_ready(stash_, dead, nullptr), "ready");
    require_refused(vdnn_stash_drop(stash_, dead), "drop");
    require_refused(vdnn_stash_leaving(stash_, nullptr, 1, &word), "leaving without room");
    require_refused(vdnn_stash_released(stash_, nullptr, &handle, 1, nullptr), "released without a count");
    require_refused(vdnn_stash_end_step(nullptr), "end_step of null");
    require(handle == kAbsent && bytes == kAbsent && word == 7 && byte == 0,
            "a call that is refused writes no result");
  }

  void ask_texts(std::uint16_t number) {
    std::array<char, 64> text{};
    text.fill('?');
    const std::uint64_t capacity = number % text.size();
    std::uint64_t needed = kAbsent;
    if ((number & 0x8000) != 0) {
      require_ok(vdnn_stash_take_notice(stash_, text.data(), capacity, &needed), "take_notice");
    } else if (vdnn_stash_learned_step(stash_, text.data(), capacity, &needed) != VDNN_OK) {
      require(needed == kAbsent && text.front() == '?', "a call that is refused writes nothing");
      return;
    }
    require(needed > 0, "the needed capacity is reported");
    require(capacity == 0 || text.at(std::min(needed, capacity) - 1) == '\0', "a text ends in the buffer");
    require(text.at(std::min(needed, capacity)) == '?', "nothing is written beyond the end");
  }

  void check() {
    vdnn_stash_statistics found{.version = VDNN_STASH_VERSION};
    require_ok(vdnn_stash_get_statistics(stash_, &found), "get_statistics");
    require(found.puts == puts_ && found.shared == shared_, "puts are counted");
    require(found.live_handles == live_.size(), "handles are counted");
    require(found.out_bytes == out_bytes_ && found.in_bytes == in_bytes_, "copies are counted");
    require(host_bytes_ == 0 || found.host_peak_bytes <= host_bytes_, "the peak is within the host's budget");
    require(found.host_bytes <= found.host_peak_bytes, "bytes in use are at most the peak");
    require(found.repeated_steps <= found.steps && found.plans <= found.steps,
            "there are at most as many plans as steps");
  }

  testing::StashFaults faults_;
  Held held_;
  vdnn_stash* stash_ = nullptr;
  bool releases_at_put_ = false;
  std::uint64_t host_bytes_ = 0;
  std::map<vdnn_stash_handle, Saved> live_;
  std::vector<std::unique_ptr<Bytes>> graveyard_;
  std::uint64_t storages_ = 0;
  std::uint64_t in_use_ = 0;
  std::uint64_t puts_ = 0;
  std::uint64_t shared_ = 0;
  std::uint64_t out_bytes_ = 0;
  std::uint64_t in_bytes_ = 0;
};

Bytes options_and_calls(const std::array<std::uint8_t, kOptionBytes>& options, std::uint64_t seed) {
  Bytes bytes(options.begin(), options.end());
  SplitMix64 random(seed);
  for (std::uint64_t i = 0; i < 80 * kCallBytes; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(random.next()));
  }
  return bytes;
}

}  // namespace

bool run_stash_abi(Input input) {
  if (input.size() < kOptionBytes || (input.size() - kOptionBytes) % kCallBytes != 0) {
    return false;
  }
  Calls calls(input.first(kOptionBytes));
  for (std::size_t at = kOptionBytes; at < input.size(); at += kCallBytes) {
    calls.call(input[at], static_cast<std::uint16_t>(input[at + 1] | input[at + 2] << 8));
  }
  calls.finish();
  return true;
}

std::vector<Seed> stash_abi_seeds() {
  std::vector<Seed> seeds;
  const auto add = [&seeds](const std::string& name, const std::array<std::uint8_t, kOptionBytes>& options) {
    seeds.push_back({.name = name, .bytes = options_and_calls(options, seeds.size())});
  };
  add("all-leaves", {0, 0, 0, 0});
  add("budget", {60, 0, 0, 0});
  add("narrow-windows", {63, 0, 0, 0});
  add("host-memory-exhausted", {0, 20, 0, 0});
  add("released-at-put", {40, 1, 0, 0});
  add("device-fails-early", {0, 0, 9, 0});
  add("device-fails-late", {40, 0, 200, 0});
  // The same step several times. From the second time on, the step follows a plan.
  for (const std::uint8_t budget : {0, 60, 100}) {
    Bytes bytes{budget, 0, 0, 0};
    for (int step = 0; step < 6; ++step) {
      bytes.insert(bytes.end(), {7, 0xb7, 0x1b});
    }
    seeds.push_back({.name = "steps-in-" + std::to_string(budget), .bytes = std::move(bytes)});
  }
  return seeds;
}

}  // namespace vdnn::fuzz
