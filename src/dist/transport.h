#pragma once
// Point-to-point messages between ranks: the part of MPI that training on several processes needs. Sends and
// receives do not wait; the caller polls them until its deadline. Tests use threads instead of MPI
// (tests/fakes/fake_network.h).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

namespace vdnn {

// A rank's place among all ranks.
struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among those of this machine
  int local_size = 1;
  std::string host;
};

// The bytes of a message, owned by `memory`. The bytes of an abandoned message stay as long as the transport
// may access them.
struct Staged {
  std::shared_ptr<std::byte[]> memory;
  std::span<std::byte> bytes;
};

// The channel (the group's, or that of one of its communicators) and the number of the exchange. Exchanges of
// a channel follow one another. Only the exchange kLastOfChannel may be in flight together with others.
constexpr std::uint64_t kLastOfChannel = std::numeric_limits<std::uint64_t>::max();
struct Tag {
  std::uint32_t channel = 0;
  std::uint64_t number = 0;
};

// A message in flight. The destructor abandons it.
class Message {
 public:
  Message() = default;
  virtual ~Message() = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  // True once the message is received or, for a send, once its bytes may be written again. Throws DeviceError
  // if the message failed or has an unexpected length. Do not call again after a call has returned true or
  // thrown.
  virtual bool done() = 0;
};

// Thread-safe; one thread at a time polls a message. Messages between two ranks with one tag arrive in the
// order in which they were sent, and match receives in the order in which these were posted.
class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual const World& world() const = 0;
  virtual std::unique_ptr<Message> send(int to, Tag tag, const Staged& staged) = 0;
  virtual std::unique_ptr<Message> receive(int from, Tag tag, const Staged& staged) = 0;

  virtual double now_seconds() = 0;
  // Pauses between polls; a fake advances its clock here. For 0 seconds, only yields to other threads.
  virtual void rest(double seconds) = 0;

  // Leaves together with all ranks, or returns after `seconds`. No message may be made or polled afterwards.
  virtual void leave(double seconds) = 0;
  // Ends the other ranks, and may end this process. If it does not, it returns within seconds.
  virtual void end_ranks(int status) = 0;
};

// Pauses after polls without result. The pauses grow: at first a message may arrive any moment, but later the
// sender probably still computes and needs the processors.
class Backoff {
 public:
  explicit Backoff(Transport& transport) : transport_(transport) {}

  void rest() {
    constexpr int kAtOnce = 16;
    constexpr double kShortest = 20e-6;
    constexpr double kLongest = 1e-3;
    if (polls_++ >= kAtOnce) {
      seconds_ = std::clamp(2 * seconds_, kShortest, kLongest);
    }
    transport_.rest(seconds_);
  }
  void restart() {
    polls_ = 0;
    seconds_ = 0;
  }

 private:
  Transport& transport_;
  int polls_ = 0;
  double seconds_ = 0;
};

}  // namespace vdnn
