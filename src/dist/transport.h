#pragma once
// Point-to-point messages between ranks: the part of MPI that training with several processes needs. send()
// and receive() return at once; the caller polls the message until it is done or a deadline has passed. Tests
// use a transport between threads instead of MPI (tests/fakes/fake_network.h).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

namespace vdnn {

// Number and host of this rank, and how many ranks there are.
struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // number among the ranks on this host
  int local_size = 1;  // how many ranks this host has
  std::string host;
};

// The bytes of a message, owned by `memory`. The transport keeps the memory of an abandoned message alive
// while it may still access the bytes.
struct Staged {
  std::shared_ptr<std::byte[]> memory;
  std::span<std::byte> bytes;
};

// The number of the one exchange that may be in flight together with other exchanges of its channel.
constexpr std::uint64_t kLastOfChannel = std::numeric_limits<std::uint64_t>::max();

// Identifies an exchange of messages. A process group and each of its communicators have a channel of their
// own. Exchanges of one channel follow one another, except for the exchange kLastOfChannel.
struct Tag {
  std::uint32_t channel = 0;
  std::uint64_t number = 0;  // of the exchange within the channel
};

// A message in flight. The destructor abandons it.
class Message {
 public:
  Message() = default;
  virtual ~Message() = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  // Returns true once the message has been received or, for a send, once the caller may write its bytes
  // again. Throws DeviceError if the message failed or has an unexpected length. Do not call again after a
  // call has returned true or thrown.
  virtual bool done() = 0;
};

// Thread-safe, but call a message's done() from one thread at a time. Messages with the same sender, receiver
// and tag arrive in the order of the calls of send(). The first message matches the first call of receive(),
// the second message the second call.
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
  // Pauses between two polls. For 0 seconds, only yields to other threads. A fake advances its clock here.
  virtual void rest(double seconds) = 0;

  // Ends the transport: returns once all ranks have called it, or after `seconds`. Do not create or poll
  // messages afterwards.
  virtual void leave(double seconds) = 0;
  // Ends all ranks with the exit status `status`. If this process is not ended with them, the call returns
  // after a few seconds.
  virtual void end_ranks(int status) = 0;
};

// Pauses after a poll without result. The pauses grow from poll to poll: at first, the message is probably
// about to arrive. Later, the sender probably still computes and needs the processors.
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
