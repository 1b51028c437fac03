#pragma once
// Messages between ranks, point to point: all that the processes that train together need of MPI. Nothing
// here waits; whoever polls brings the deadline. Tests put threads in MPI's place
// (tests/fakes/fake_network.h).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

namespace vdnn {

// Where a rank is.
struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among those of this machine
  int local_size = 1;
  std::string host;
};

// Bytes that a message is read from or written to. `memory` owns them: of a message that is let go before it
// is done they stay as long as they may be touched.
struct Staged {
  std::shared_ptr<std::byte[]> memory;
  std::span<std::byte> bytes;
};

// Who talks (the group or one of its communicators), and which of its exchanges it is: those of one channel
// come one after another, but for the last, which is in flight beside any of them.
constexpr std::uint64_t kLastOfChannel = std::numeric_limits<std::uint64_t>::max();
struct Tag {
  std::uint32_t channel = 0;
  std::uint64_t number = 0;
};

// In flight. Going lets go of it: nobody hears of it any more.
class Message {
 public:
  Message() = default;
  virtual ~Message() = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  // Whether it was received, or whether what was sent may be written to again. Throws DeviceError where it
  // failed or is not as long as what was to be received. Not to be asked again after that, or when it is
  // done.
  virtual bool done() = 0;
};

// Thread-safe; one message is polled by one thread at a time. Messages between two ranks under one tag arrive
// in the order in which they were sent, and are received in the order in which the receives were posted.
class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual const World& world() const = 0;
  virtual std::unique_ptr<Message> send(int to, Tag tag, const Staged& staged) = 0;
  virtual std::unique_ptr<Message> receive(int from, Tag tag, const Staged& staged) = 0;

  // How whoever polls passes the time, so that a fake's passes as its ranks do. 0: only lets others run.
  virtual double now_seconds() = 0;
  virtual void rest(double seconds) = 0;

  // All ranks have come to their end. Afterwards no message may be made or polled. Returns after so many
  // seconds even where it is not done.
  virtual void leave(double seconds) = 0;
  // Ends the other ranks, and may end this process. Returns within seconds where it does not.
  virtual void end_ranks(int status) = 0;
};

// How long whoever polls in vain rests: a message that is on its way comes at once, one of a rank that still
// computes does not, and who waits for it shares the processors.
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
