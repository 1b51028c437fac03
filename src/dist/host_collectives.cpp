#include "src/dist/host_collectives.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "src/dist/exchange.h"
#include "src/ops/formats.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kWordBytes = 256;
constexpr std::uint64_t kCacheLine = 64;

std::string text_of(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

// Splits `values` into `parts` parts whose lengths differ by at most one element, and returns part `number`.
std::span<std::byte> part(std::span<std::byte> values, std::size_t element_bytes, int number, int parts) {
  const auto begin_of = [&](int n) {
    return values.size() / element_bytes * static_cast<std::size_t>(n) / static_cast<std::size_t>(parts) *
           element_bytes;
  };
  return values.subspan(begin_of(number), begin_of(number + 1) - begin_of(number));
}

// memcpy() needs valid addresses even for 0 bytes, and an empty span may have none.
void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty()) {
    std::memcpy(to.data(), from.data(), from.size_bytes());
  }
}

// Staging memory is aligned for every type of element. So is every address that is a whole number of elements
// after its begin.
template <class Element>
std::span<Element> as(std::span<std::byte> bytes) {
  return {reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(Element)};
}

}  // namespace

// One running collective.
class HostCollectives::Run {
 public:
  Run(HostCollectives& all, std::uint64_t number, const std::string& what)
      : all_(all),
        tag_{.channel = all.channel_, .number = number},
        what_(all.who_ + ": " + what),
        exchange_(*all.group_->transport) {}

  // Cuts `values` into pieces, and calls `work` once per piece with the piece's places.
  void for_pieces(const Places& values, const std::function<void(const Places&)>& work) const {
    Places places;
    std::size_t room = all_.piece_.size();
    for (std::span<std::byte> rest : values) {
      while (!rest.empty()) {
        const std::size_t count = std::min(rest.size(), room);
        places.push_back(rest.first(count));
        rest = rest.subspan(count);
        room -= count;
        if (room == 0) {
          work(std::exchange(places, {}));
          room = all_.piece_.size();
        }
      }
    }
    if (!places.empty()) {
      work(places);
    }
  }

  void all_reduce(const Places& places, DataType type) {
    const std::span<std::byte> piece = copy_in(places);
    const Parts parts = parts_of(piece, size_of(type));
    scatter(parts);
    ops::with_format(type, [&]<class Format>(Format) { fold<Format>(parts[own()]); });
    gather(parts);
    copy_out(places);
  }

  void broadcast(const Places& places, int root) {
    if (root == all_.rank_) {
      const std::span<std::byte> piece = copy_in(places);
      for_others([&](int rank) { send(rank, piece); });
      complete();
    } else {
      receive(root, piece_of(places));
      complete();
      copy_out(places);
    }
  }

 private:
  using Parts = std::vector<std::span<std::byte>>;  // the parts of a piece, by the rank that owns them

  std::size_t own() const { return static_cast<std::size_t>(all_.rank_); }

  // The staging memory for the values at `places`.
  std::span<std::byte> piece_of(const Places& places) const {
    std::size_t bytes = 0;
    for (const std::span<std::byte> place : places) {
      bytes += place.size();
    }
    return all_.piece_.first(bytes);
  }
  std::span<std::byte> copy_in(const Places& places) const {
    const std::span<std::byte> piece = piece_of(places);
    std::span<std::byte> rest = piece;
    for (const std::span<std::byte> place : places) {
      copy(place, rest);
      rest = rest.subspan(place.size());
    }
    return piece;
  }
  void copy_out(const Places& places) const {
    std::span<const std::byte> rest = all_.piece_;
    for (const std::span<std::byte> place : places) {
      copy(rest.first(place.size()), place);
      rest = rest.subspan(place.size());
    }
  }

  Parts parts_of(std::span<std::byte> piece, std::size_t element_bytes) const {
    Parts parts;
    for (int rank = 0; rank < all_.size_; ++rank) {
      parts.push_back(part(piece, element_bytes, rank, all_.size_));
    }
    return parts;
  }

  // Sends each part to the rank that owns it. A rank's staging has space for its own part from every rank.
  void scatter(const Parts& parts) {
    const std::span<std::byte> mine = parts[own()];
    for_others([&](int rank) {
      receive(rank, from_rank(rank, mine.size()));
      send(rank, parts[static_cast<std::size_t>(rank)]);
    });
    copy(mine, from_rank(all_.rank_, mine.size()));
    complete();
  }

  // Adds the ranks' values block by block, so that a block's sums stay in the L1 cache while rank after rank
  // is added.
  template <class Format>
  void fold(std::span<std::byte> part) const {
    using Stored = typename Format::Bits;
    constexpr std::size_t kBlock = 1024;
    const std::span<Stored> mine = as<Stored>(part);
    std::array<float, kBlock> sums{};
    for (std::size_t begin = 0; begin < mine.size(); begin += kBlock) {
      const std::size_t count = std::min(kBlock, mine.size() - begin);
      for (int rank = 0; rank < all_.size_; ++rank) {
        const Stored* const theirs = as<Stored>(from_rank(rank, part.size())).data() + begin;
        for (std::size_t i = 0; i < count; ++i) {
          const float brought = Format::widen(theirs[i]);
          sums[i] = rank == 0 ? brought : sums[i] + brought;
        }
      }
      for (std::size_t i = 0; i < count; ++i) {
        mine[begin + i] = Format::narrow(sums[i]);
      }
    }
  }

  void gather(const Parts& parts) {
    for_others([&](int rank) {
      receive(rank, parts[static_cast<std::size_t>(rank)]);
      send(rank, parts[own()]);
    });
    complete();
  }

  std::span<std::byte> from_rank(int rank, std::size_t bytes) const {
    const std::size_t room = all_.parts_.size() / static_cast<std::size_t>(all_.size_);
    return all_.parts_.subspan(static_cast<std::size_t>(rank) * room, bytes);
  }

  template <class Work>
  void for_others(const Work& work) const {
    for (int rank = 0; rank < all_.size_; ++rank) {
      if (rank != all_.rank_) {
        work(rank);
      }
    }
  }

  void send(int rank, std::span<std::byte> values) {
    if (!values.empty()) {
      exchange_.send(rank, tag_, all_.staged(values));
    }
  }
  void receive(int rank, std::span<std::byte> values) {
    if (!values.empty()) {
      exchange_.receive(rank, tag_, all_.staged(values));
    }
  }
  void complete() {
    exchange_.complete(all_.options_.wait_seconds, what_, all_.group_->hosts, [this] { all_.check(); });
  }

  HostCollectives& all_;
  const Tag tag_;
  const std::string what_;
  Exchange exchange_;
};

HostCollectives::HostCollectives(std::string who, const MpiOptions& options,
                                 std::shared_ptr<GroupFacts> group, std::uint32_t channel)
    : who_(std::move(who)),
      options_(options),
      group_(std::move(group)),
      channel_(channel),
      rank_(group_->transport->world().rank),
      size_(group_->transport->world().size) {
  if (size_ == 1) {
    return;
  }
  const auto ranks = static_cast<std::uint64_t>(size_);
  const std::uint64_t words = (ranks + 1) * kWordBytes;
  // MPI counts a message's bytes in an int.
  constexpr std::uint64_t kLargestPiece = 1 << 30;
  const std::uint64_t unit = ranks * kCacheLine;
  const std::uint64_t piece =
      std::min((options.staging_bytes - words - kCacheLine) / 2, kLargestPiece) / unit * unit;
  staging_bytes_ = words + 2 * piece + kCacheLine;
  try {
    memory_ = std::make_shared<std::byte[]>(staging_bytes_);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(who_ + ": staging", {.asked = staging_bytes_});
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
  cut(kCacheLine - address % kCacheLine);
  piece_ = cut(piece);
  parts_ = cut(piece);
  words_ = cut(words);
  listen();
}

std::span<std::byte> HostCollectives::cut(std::uint64_t bytes) {
  const std::uint64_t begin = std::exchange(cut_bytes_, cut_bytes_ + bytes);
  return {memory_.get() + begin, static_cast<std::size_t>(bytes)};
}

// --- running -----------------------------------------------------------------------------------------------

void HostCollectives::all_reduce(std::uint64_t number, const std::string& what, const Places& values,
                                 DataType type) {
  run(number, what,
      [&](Run& run) { run.for_pieces(values, [&](const Places& places) { run.all_reduce(places, type); }); });
}

void HostCollectives::broadcast(std::uint64_t number, const std::string& what, const Places& values,
                                int root) {
  run(number, what,
      [&](Run& run) { run.for_pieces(values, [&](const Places& places) { run.broadcast(places, root); }); });
}

void HostCollectives::run(std::uint64_t number, const std::string& what,
                          const std::function<void(Run&)>& body) {
  const std::lock_guard running(running_);
  try {
    check();
    if (number != next_) {
      throw DeviceError(who_ + ": " + what + ": a collective before it did not run");
    }
    ++next_;
    if (size_ > 1) {
      Run run(*this, number, what);
      body(run);
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

// --- failing -----------------------------------------------------------------------------------------------

void HostCollectives::listen() {
  heard_.resize(static_cast<std::size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      const std::size_t offset = (static_cast<std::size_t>(rank) + 1) * kWordBytes;
      heard_[static_cast<std::size_t>(rank)] = group_->transport->receive(
          rank, {.channel = channel_, .number = kLastOfChannel}, staged(words_.subspan(offset, kWordBytes)));
    }
  }
}

std::exception_ptr HostCollectives::hear() {
  for (std::size_t rank = 0; rank < heard_.size(); ++rank) {
    if (heard_[rank] && heard_[rank]->done()) {
      heard_[rank].reset();
      const auto* const words = reinterpret_cast<const char*>(words_.subspan((rank + 1) * kWordBytes).data());
      const std::string sender = name_ranks({static_cast<int>(rank)}, group_->hosts);
      group_->failed.store(true);
      group_->told.store(true);
      return std::make_exception_ptr(DeviceError(who_ + ": " + sender + " has given up: " + words));
    }
  }
  return nullptr;
}

void HostCollectives::check() {
  const std::lock_guard lock(mutex_);
  if (!cause_) {
    try {
      cause_ = hear();  // not told to the other ranks, which have received the same report
    } catch (...) {
      cause_ = std::current_exception();
    }
  }
  if (cause_) {
    std::rethrow_exception(cause_);
  }
}

void HostCollectives::end(const std::exception_ptr& cause) {
  {
    const std::lock_guard lock(mutex_);
    if (cause_) {
      return;
    }
    cause_ = cause;
  }
  group_->failed.store(true);
  tell(cause);
}

void HostCollectives::end(const std::string& cause) {
  end(std::make_exception_ptr(DeviceError(who_ + ": " + cause)));
}

void HostCollectives::tell(const std::exception_ptr& cause) {
  // A short wait suffices: MPI sends small messages at once, except for the first on a connection, and the
  // group's start has connected all ranks.
  constexpr double kPatience = 1;
  if (size_ == 1) {
    return;
  }
  const std::string text = text_of(cause).substr(0, kWordBytes - 1);
  const std::span<std::byte> word = words_.first(kWordBytes);
  std::memcpy(word.data(), text.data(), text.size());  // the bytes after the text stay zero
  try {
    Exchange exchange(*group_->transport);
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) {
        exchange.send(rank, {.channel = channel_, .number = kLastOfChannel}, staged(word));
      }
    }
    exchange.complete(kPatience, "", group_->hosts);
  } catch (const std::exception&) {
    // A rank that does not receive the message notices the failure by its own timeout.
  }
}

void HostCollectives::fail(const std::exception_ptr& cause) {
  end(cause);
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(cause_);
}

void HostCollectives::close() {
  const std::lock_guard running(running_);
  const std::lock_guard lock(mutex_);
  if (!cause_) {
    cause_ = std::make_exception_ptr(DeviceError(who_ + ": its communicator has been destroyed"));
  }
  heard_.clear();
}

}  // namespace vdnn
