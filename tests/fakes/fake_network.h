#pragma once
// Ranks as threads, for tests of code that communicates through a Transport. Messages are copied when they
// are sent, and arrive after a number of polls determined by the seed.
//
// Time is logical, and passes only when a test says so. A rank times out because other ranks do not answer,
// never because the machine is busy.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "src/dist/transport.h"

namespace vdnn {

struct FakeNetworkOptions {
  std::uint64_t seed = 0;
  int ranks = 2;
};

// Thread-safe. Outlives its transports.
class FakeNetwork {
 public:
  explicit FakeNetwork(const FakeNetworkOptions& options);

  std::shared_ptr<Transport> transport(int rank);
  // Runs work(rank) on one thread per rank until all have returned. Returns what each threw, or "".
  std::vector<std::string> run(const std::function<void(int rank)>& work);

  void let_pass(double seconds);
  double now_seconds() const;
  // Returns once each of `ranks` waits for another rank: it has polled in vain many times since the last
  // message was sent or received. Polls for messages about failures do not count.
  void until_they_wait(const std::vector<int>& ranks);
  // How long `rank` has asked to rest, in total.
  double rested_seconds(int rank) const;
  // Whether `rank` has left.
  bool left(int rank) const;

 private:
  class End;
  class Sent;
  class Received;

  using Address = std::tuple<int, int, std::uint32_t, std::uint64_t>;  // from, to, channel, number
  struct Parcel {
    std::vector<std::byte> bytes;
    int polls = 0;  // left before it arrives
  };

  void send(const Address& address, std::span<const std::byte> bytes);
  bool receive(const Address& address, std::span<std::byte> bytes);

  const FakeNetworkOptions options_;
  mutable std::mutex mutex_;  // guards all members below
  std::mt19937_64 random_;
  double now_seconds_ = 0;
  std::map<Address, std::deque<Parcel>> under_way_;
  std::vector<int> polls_in_vain_;
  std::vector<double> rested_seconds_;
  std::vector<bool> left_;
};

}  // namespace vdnn
