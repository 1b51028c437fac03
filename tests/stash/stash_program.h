#pragma once
// A program that saves tensors through a stash like a framework's adapter. It has reference-counted storages
// that are freed in the order of their stream, hooks that put, read and drop, and random steps.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/stash/stash_judge.h"
#include "vdnn/error.h"
#include "vdnn/tensor_stash.h"

namespace vdnn::testing {

// The framework's allocator: freed memory is available to the same stream at once, and to no other stream. If
// the offload stream may still read a block, the block's next user waits for the offload stream, as with
// vdnn's pool and used_on().
class CachingMemory {
 public:
  explicit CachingMemory(StashJudge& judge) : judge_(judge), arena_(judge.arena()) {}

  AddressRange take(std::uint64_t bytes, StreamHandle stream) {
    in_use_bytes_ += bytes;
    std::vector<Block>& cached = cached_[{stream, bytes}];
    if (!cached.empty()) {
      const Block block = cached.back();
      cached.pop_back();
      if (block.user != nullptr) {
        judge_.order(stream, block.user);
      }
      return block.range;
    }
    if (taken_ + bytes > arena_.bytes) {
      throw std::logic_error("the arena is too small for the program");
    }
    taken_ += bytes;
    return {.begin = arena_.begin + taken_ - bytes, .bytes = bytes};
  }
  // `user` is a stream that may still use the range; null if there is none.
  void give(AddressRange range, StreamHandle stream, StreamHandle user) {
    in_use_bytes_ -= range.bytes;
    cached_[{stream, range.bytes}].push_back({.range = range, .user = user});
  }
  std::uint64_t in_use_bytes() const { return in_use_bytes_; }

 private:
  struct Block {
    AddressRange range;
    StreamHandle user = nullptr;
  };

  StashJudge& judge_;
  const AddressRange arena_;
  std::uint64_t taken_ = 0;
  std::uint64_t in_use_bytes_ = 0;
  std::map<std::pair<StreamHandle, std::uint64_t>, std::vector<Block>> cached_;
};

struct Storage {
  Storage(CachingMemory& of, std::uint64_t bytes, StreamHandle on, std::uint64_t number)
      : memory(of), range(of.take(bytes, on)), stream(on), id(number) {}
  ~Storage() { memory.give(range, stream, user); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  CachingMemory& memory;
  const AddressRange range;
  const StreamHandle stream;
  const std::uint64_t id;
  std::uint64_t version = 0;
  StreamHandle user = nullptr;  // for vdnn's pool: used_on()

  // Memory from outside the pool, which the next user on its stream gets without a wait for the offload
  // stream.
  bool is_foreign() const { return id % 4 == 3; }
};
using Tensor = std::shared_ptr<Storage>;

inline std::uint64_t contents_of(const Storage& storage) {
  return contents_version({.storage = storage.id, .version = storage.version});
}

// Mistakes of an adapter.
enum class AdapterDefect : std::uint8_t {
  kNone,
  kIdentityByAddress,  // the address serves as identity, but later belongs to another tensor
  kVersionIgnored,
  kDecidesByPolling,  // lets tensors leave only if polling finds no copy in flight
};

// Represents a tensor until the backward pass.
struct SavedHandle {
  StashHandle handle = 0;
  Tensor kept;                 // set, without a handle, if the stash refused the tensor
  std::uint64_t contents = 0;  // expected by a reader
};

class StashAdapter {
 public:
  StashAdapter(StashJudge& judge, CachingMemory& memory, const StashOptions& options, bool tells_bytes,
               AdapterDefect defect,
               const std::function<std::unique_ptr<StashBackend>(std::unique_ptr<StashBackend>)>& wrap = {})
      : judge_(judge),
        memory_(memory),
        releases_at_put_(options.release_at_put),
        tells_bytes_(tells_bytes),
        defect_(defect) {
    std::unique_ptr<StashBackend> backend = judge.make_backend();
    stash_.emplace(wrap ? wrap(std::move(backend)) : std::move(backend), options);
  }

  TensorStash& stash() { return *stash_; }
  // All decisions of the stash in order, taken from its answers.
  const std::vector<std::uint64_t>& decisions() const { return decisions_; }
  const std::vector<std::string>& failures() const { return failures_; }
  // The most bytes in use at any call since the last take_told_peak().
  std::uint64_t take_told_peak() { return std::exchange(told_peak_, 0); }

  SavedHandle save(const Tensor& tensor, StreamHandle stream) {
    SavedHandle saved{.contents = contents_of(*tensor)};
    PutAnswer answer;
    if (!attempt([&] {
          answer = stash_->put({.source = tensor->range,
                                .stream = stream,
                                .contents = identity_of(*tensor),
                                .signature = tensor->range.bytes},
                               in_use());
        })) {
      saved.kept = tensor;
      return saved;
    }
    saved.handle = answer.handle;
    decide({static_cast<std::uint64_t>(answer.verdict), answer.has_released, answer.has_leaving});
    if (answer.verdict == StashVerdict::kShared) {
      ++blocks_.at(answer.handle).users;
    } else {
      blocks_.insert_or_assign(
          answer.handle,
          Block{.source = tensor, .original = tensor, .version = tensor->version, .stream = stream});
    }
    release(answer, stream);
    while (answer.has_leaving) {
      answer.has_leaving = let_leave(stream);
    }
    return saved;
  }

  // Makes the tensor available to the next work on `stream`.
  Tensor read(const SavedHandle& saved, StreamHandle stream) {
    if (saved.kept) {
      return saved.kept;
    }
    Block& block = blocks_.at(saved.handle);
    Tensor original = block.original.lock();
    const bool is_same = original && original->version == block.version;
    const bool held = is_same && original.use_count() > (block.source ? 2 : 1);
    ReadAnswer answer;
    insist([&] { answer = stash_->read(saved.handle, stream, in_use(), held); });
    decide({static_cast<std::uint64_t>(answer.place), answer.has_fetches, answer.last});
    if (answer.has_fetches) {
      fetch_due(saved.handle, stream, answer.place == StashPlace::kMissing);
    }
    if (answer.place == StashPlace::kInPlace) {
      return original;
    }
    if (answer.place == StashPlace::kMissing) {
      insist([&] { stash_->ready(saved.handle, stream); });
    }
    return answer.last ? std::exchange(block.back, nullptr) : block.back;
  }

  void drop(const SavedHandle& saved) {
    if (saved.handle == 0) {
      return;
    }
    attempt([&] { stash_->drop(saved.handle); });
    Block& block = blocks_.at(saved.handle);
    if (--block.users == 0) {
      blocks_.erase(saved.handle);
    }
  }

  // Requires that no handle is alive; destroys the stash.
  void end() {
    blocks_.clear();
    stash_.reset();
  }

 private:
  struct Block {
    Tensor source;
    std::weak_ptr<Storage> original;
    Tensor back;
    std::uint64_t version = 0;
    StreamHandle stream = nullptr;
    std::uint64_t users = 1;
  };

  StashIdentity identity_of(const Storage& storage) const {
    return {.storage = defect_ == AdapterDefect::kIdentityByAddress ? storage.range.begin : storage.id,
            .version = defect_ == AdapterDefect::kVersionIgnored ? 0 : storage.version};
  }
  std::uint64_t in_use() {
    told_peak_ = std::max(told_peak_, memory_.in_use_bytes());
    return tells_bytes_ ? memory_.in_use_bytes() : 0;
  }
  void decide(std::initializer_list<std::uint64_t> answer) { decisions_.insert(decisions_.end(), answer); }

  // A failed call has changed nothing, so a repeated call does its work.
  template <class Call>
  bool attempt(const Call& call) {
    try {
      call();
      return true;
    } catch (const Error& error) {
      failures_.emplace_back(error.what());
      return false;
    }
  }
  template <class Call>
  void insist(const Call& call) {
    if (!attempt(call)) {
      call();
    }
  }

  void release(const PutAnswer& answer, StreamHandle stream) {
    if (releases_at_put_ && answer.verdict == StashVerdict::kLeaves) {
      Tensor& source = blocks_.at(answer.handle).source;
      if (source->is_foreign()) {
        stash_->hold(answer.handle);
      } else {
        source->user = stash_->backend().offload_stream();
        source.reset();
      }
    }
    if (!answer.has_released) {
      return;
    }
    attempt([&] {
      for (const StashHandle handle : stash_->released(stream, 64)) {
        decide({handle});
        blocks_.at(handle).source.reset();
      }
    });
  }

  // Returns true if the caller should ask again.
  bool let_leave(StreamHandle stream) {
    std::vector<StashHandle> leaving;
    attempt([&] { leaving = stash_->leaving(2); });
    for (const StashHandle handle : leaving) {
      decide({handle});
      const Block& block = blocks_.at(handle);
      const bool is_mine =
          block.source.use_count() == 1 && block.source->version == block.version && may_copy();
      attempt([&] {
        if (is_mine) {
          release(stash_->leave(handle, stream), stream);
        } else {
          stash_->stay(handle);
        }
      });
    }
    return !leaving.empty();
  }

  bool may_copy() {
    return defect_ != AdapterDefect::kDecidesByPolling || judge_.is_done(stash_->backend().offload_stream());
  }

  void fetch_due(StashHandle reading, StreamHandle stream, bool is_missing) {
    std::vector<DueFetch> due;
    insist([&] { due = stash_->fetches(reading, 8); });
    for (const DueFetch& each : due) {
      decide({each.handle});
      Block& block = blocks_.at(each.handle);
      block.back = std::make_shared<Storage>(memory_, each.bytes, stream, 0);
      const auto fetch = [&] { stash_->fetch(each.handle, block.back->range.begin, stream); };
      if (is_missing && each.handle == reading) {
        insist(fetch);
      } else if (!attempt(fetch)) {
        block.back.reset();
      }
    }
  }

  StashJudge& judge_;
  CachingMemory& memory_;
  const bool releases_at_put_;
  const bool tells_bytes_;
  const AdapterDefect defect_;
  std::optional<TensorStash> stash_;
  std::map<StashHandle, Block> blocks_;
  std::uint64_t told_peak_ = 0;
  std::vector<std::uint64_t> decisions_;
  std::vector<std::string> failures_;
};

// --- random steps ------------------------------------------------------------------------------------------

// The forward pass is a chain of layers, each of which saves its result.
struct ChainLayer {
  std::uint64_t bytes = 0;
  std::size_t held_for = 0;  // number of layers for which the program itself holds the result
  bool is_saved_twice = false;
  bool is_changed = false;  // in place, before it is saved
  // A branch runs on the other stream, and no later layer reads its result. At the end of the pass, the first
  // stream waits for the branch.
  bool is_branch = false;
};
using Chain = std::vector<ChainLayer>;

class StashProgram {
 public:
  StashProgram(StashJudge& judge, StashAdapter& adapter, CachingMemory& memory, std::uint64_t seed)
      : judge_(judge), adapter_(adapter), memory_(memory), random_(seed), has_branches_(below(3) == 0) {
    kinds_.resize(1 + below(2));
    for (Chain& kind : kinds_) {
      kind.resize(3 + below(8));
      std::ranges::generate(kind, [this] { return random_layer(); });
    }
  }

  // Usually one of the program's kinds; sometimes with other layers, or cut short.
  void step() {
    Chain chain = kinds_[below(kinds_.size())];
    const bool is_irregular = below(4) == 0;
    if (is_irregular) {
      change(chain);
    }
    step(chain, is_irregular);
  }

  // One step on either of the two streams.
  void step(const Chain& chain, bool is_irregular) {
    main_ = judge_.stream(below(4) == 0 ? 1 : 0);
    std::vector<SavedHandle> saved = forward(chain);
    if (is_irregular && below(4) == 0) {
      std::ranges::shuffle(saved, random_);
    } else {
      std::ranges::reverse(saved);
      backward(saved, is_irregular);
    }
    std::ranges::for_each(saved, [this](const SavedHandle& each) { adapter_.drop(each); });
    if (is_irregular || has_branches_) {
      judge_.order(other(), main());  // since this step may have used the other stream's memory
    }
    if (is_irregular && below(4) == 0) {
      adapter_.stash().end_step();
    }
    judge_.rest();
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  StreamHandle main() const { return main_; }
  StreamHandle other() const { return judge_.stream(main_ == judge_.stream(0) ? 1 : 0); }

  ChainLayer random_layer() {
    return {.bytes = 256 * (1 + below(4)),
            .held_for = below(4) == 0 ? below(6) : 0,
            .is_saved_twice = below(6) == 0,
            .is_changed = below(6) == 0,
            .is_branch = has_branches_ && below(4) == 0};
  }
  void change(Chain& chain) {
    switch (below(3)) {
      case 0:
        chain.erase(chain.begin() + static_cast<std::ptrdiff_t>(below(chain.size())));
        break;
      case 1:
        chain.insert(chain.begin() + static_cast<std::ptrdiff_t>(below(chain.size() + 1)), random_layer());
        break;
      default:
        chain[below(chain.size())].bytes += 256;
        break;
    }
  }

  Tensor make(const ChainLayer& layer, const Tensor& input, StreamHandle stream) {
    auto result = std::make_shared<Storage>(memory_, layer.bytes, stream, ++storages_);
    std::vector<JudgedAccess> reads;
    if (input) {
      reads.push_back({.range = input->range, .version = contents_of(*input)});
    }
    judge_.work(stream, "forward", reads, {{.range = result->range, .version = contents_of(*result)}});
    if (layer.is_changed) {
      ++result->version;
      judge_.work(stream, "in place", {}, {{.range = result->range, .version = contents_of(*result)}});
    }
    return result;
  }

  std::vector<SavedHandle> forward(const Chain& chain) {
    std::vector<SavedHandle> saved;
    std::deque<std::pair<std::size_t, Tensor>> held;  // each tensor with the layer up to which it is held
    Tensor last;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const StreamHandle stream = chain[i].is_branch ? other() : main();
      if (chain[i].is_branch) {
        judge_.order(other(), main());
      }
      const Tensor made = make(chain[i], last, stream);
      held.emplace_back(i + chain[i].held_for, made);
      for (int times = chain[i].is_saved_twice ? 2 : 1; times > 0; --times) {
        saved.push_back(adapter_.save(made, stream));
      }
      if (!chain[i].is_branch) {
        last = made;
      } else if (last) {
        held.emplace_back(chain.size(), last);  // the branch may still read it
      }
      std::erase_if(held, [i](const auto& each) { return each.first <= i; });
    }
    if (has_branches_) {
      judge_.order(main(), other());
    }
    return saved;
  }
  // An irregular pass may reorder tensors, read them twice or skip some.
  void backward(std::vector<SavedHandle>& saved, bool is_irregular) {
    if (is_irregular) {
      std::swap(saved[below(saved.size())], saved[below(saved.size())]);
    }
    const bool keeps_graph = is_irregular && below(3) == 0;
    std::vector<SavedHandle> rest;
    for (const SavedHandle& each : saved) {
      if (!is_irregular || below(8) != 0) {
        use(each, is_irregular && below(8) == 0 ? other() : main());
      }
      if (keeps_graph) {
        rest.push_back(each);
      } else {
        adapter_.drop(each);
      }
    }
    for (const SavedHandle& each : rest) {
      use(each, main());
    }
    saved = std::move(rest);
  }

  void use(const SavedHandle& saved, StreamHandle stream) {
    // The program itself orders its streams around its other work.
    if (stream != main()) {
      judge_.order(stream, main());
    }
    {
      const Tensor tensor = adapter_.read(saved, stream);
      const Storage gradient(memory_, tensor->range.bytes, stream, ++storages_);
      judge_.work(stream, "backward", {{.range = tensor->range, .version = saved.contents}},
                  {{.range = gradient.range, .version = contents_of(gradient)}});
      if (stream != main()) {
        judge_.order(main(), stream);
      }
    }
  }

  StashJudge& judge_;
  StashAdapter& adapter_;
  CachingMemory& memory_;
  std::mt19937_64 random_;
  const bool has_branches_;  // without branches, steps on the two streams are unordered
  std::vector<Chain> kinds_;
  StreamHandle main_ = nullptr;
  std::uint64_t storages_ = 0;
};

// Budgets under which all, some or no tensors leave, with various windows and sizes of host memory.
inline StashOptions random_stash_options(std::mt19937_64& random) {
  StashOptions options;
  const std::uint64_t budgets[] = {0, 0, 1500, 2500, 4000, 1 << 20};
  options.budget_bytes = budgets[random() % std::size(budgets)];
  options.host_bytes = random() % 4 == 0 ? 2048 : std::uint64_t{1} << 20;
  if (random() % 2 == 0) {
    options.ahead_bytes = random() % 4 * 512;
  }
  if (random() % 2 == 0) {
    options.flight_bytes = random() % 4 * 512;
  }
  options.release_at_put = random() % 3 == 0;
  return options;
}

}  // namespace vdnn::testing
