#include "tests/fakes/fake_network.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "vdnn/error.h"

namespace vdnn {

namespace {

void pause() {
  constexpr std::chrono::microseconds kPause(50);
  std::this_thread::sleep_for(kPause);
}

}  // namespace

class FakeNetwork::Sent final : public Message {
 public:
  bool done() override { return true; }
};

class FakeNetwork::Received final : public Message {
 public:
  Received(FakeNetwork& network, const Address& address, const Staged& staged)
      : network_(network), address_(address), staged_(staged) {}
  bool done() override { return network_.receive(address_, staged_.bytes); }

 private:
  FakeNetwork& network_;
  const Address address_;
  const Staged staged_;
};

class FakeNetwork::End final : public Transport {
 public:
  End(FakeNetwork& network, int rank) : network_(network), world_{.rank = rank} {
    world_.size = world_.local_size = network.options_.ranks;
    world_.local_rank = rank;
    world_.host = "host" + std::to_string(rank);
  }

  const World& world() const override { return world_; }
  std::unique_ptr<Message> send(int to, Tag tag, const Staged& staged) override {
    network_.send({world_.rank, to, tag.channel, tag.number}, staged.bytes);
    return std::make_unique<Sent>();
  }
  std::unique_ptr<Message> receive(int from, Tag tag, const Staged& staged) override {
    return std::make_unique<Received>(network_, Address{from, world_.rank, tag.channel, tag.number}, staged);
  }
  double now_seconds() override { return network_.now_seconds(); }
  void rest(double seconds) override {
    {
      const std::lock_guard lock(network_.mutex_);
      network_.rested_seconds_[static_cast<std::size_t>(world_.rank)] += seconds;
    }
    pause();
  }
  void leave(double) override {
    const std::lock_guard lock(network_.mutex_);
    network_.left_[static_cast<std::size_t>(world_.rank)] = true;
  }
  void end_ranks(int status) override { throw DeviceError("aborted with " + std::to_string(status)); }

 private:
  FakeNetwork& network_;
  World world_;
};

FakeNetwork::FakeNetwork(const FakeNetworkOptions& options)
    : options_(options),
      random_(options.seed),
      polls_in_vain_(static_cast<std::size_t>(options.ranks)),
      rested_seconds_(static_cast<std::size_t>(options.ranks)),
      left_(static_cast<std::size_t>(options.ranks)) {}

std::shared_ptr<Transport> FakeNetwork::transport(int rank) {
  return std::make_shared<End>(*this, rank);
}

std::vector<std::string> FakeNetwork::run(const std::function<void(int)>& work) {
  std::vector<std::string> said(static_cast<std::size_t>(options_.ranks));
  std::vector<std::thread> threads;
  threads.reserve(said.size());
  for (int rank = 0; rank < options_.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(rank);
      } catch (const std::exception& error) {
        said[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  std::ranges::for_each(threads, [](std::thread& each) { each.join(); });
  return said;
}

void FakeNetwork::let_pass(double seconds) {
  const std::lock_guard lock(mutex_);
  now_seconds_ += seconds;
}

double FakeNetwork::now_seconds() const {
  const std::lock_guard lock(mutex_);
  return now_seconds_;
}

double FakeNetwork::rested_seconds(int rank) const {
  const std::lock_guard lock(mutex_);
  return rested_seconds_[static_cast<std::size_t>(rank)];
}

void FakeNetwork::until_they_wait(const std::vector<int>& ranks) {
  constexpr int kOften = 20;  // polls; every message arrives after fewer
  const auto all_wait = [&] {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(
        ranks, [&](int rank) { return polls_in_vain_[static_cast<std::size_t>(rank)] >= kOften; });
  };
  while (!all_wait()) {
    pause();
  }
}

bool FakeNetwork::left(int rank) const {
  const std::lock_guard lock(mutex_);
  return left_[static_cast<std::size_t>(rank)];
}

void FakeNetwork::send(const Address& address, std::span<const std::byte> bytes) {
  constexpr std::uint64_t kLatest = 4;
  const std::lock_guard lock(mutex_);
  std::ranges::fill(polls_in_vain_, 0);
  under_way_[address].push_back(
      {.bytes = {bytes.begin(), bytes.end()}, .polls = static_cast<int>(random_() % kLatest)});
}

bool FakeNetwork::receive(const Address& address, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = under_way_.find(address);
  if (found == under_way_.end() || found->second.front().polls-- > 0) {
    if (std::get<3>(address) != kLastOfChannel) {
      ++polls_in_vain_[static_cast<std::size_t>(std::get<1>(address))];
    }
    return false;
  }
  std::ranges::fill(polls_in_vain_, 0);
  const Parcel parcel = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    under_way_.erase(found);
  }
  if (parcel.bytes.size() != bytes.size()) {
    throw DeviceError("a message of " + std::to_string(parcel.bytes.size()) + " bytes where " +
                      std::to_string(bytes.size()) + " were expected");
  }
  std::ranges::copy(parcel.bytes, bytes.begin());
  return true;
}

}  // namespace vdnn
