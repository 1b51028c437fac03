#include "vdnn/allocation_log.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <ostream>
#include <string>

#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::string_view kFirstLine = "vdnn-allocation-log 1";
constexpr std::string_view kStep = "step";

// Follows a log event by event and reports events that are impossible.
class Follower {
 public:
  // Returns the reason why the event is impossible; empty if it is possible.
  std::string add(const AllocationEvent& event) {
    if (event.kind == AllocationEvent::Kind::kAllocate) {
      if (event.block != blocks_.size()) {
        return "its block must have number " + std::to_string(blocks_.size());
      }
      if (event.bytes > std::numeric_limits<std::uint64_t>::max() - live_bytes_) {
        return "more bytes are live than 64 bits can count";
      }
      blocks_.push_back({.bytes = event.bytes, .live = true});
      live_bytes_ += event.bytes;
      peak_bytes_ = std::max(peak_bytes_, live_bytes_);
      ++live_count_;
      return {};
    }
    if (event.block >= blocks_.size() || !blocks_[event.block].live) {
      return "there is no block " + std::to_string(event.block);
    }
    if (event.kind == AllocationEvent::Kind::kUse) {
      return {};
    }
    if (event.block < before_step_) {
      return "a step frees block " + std::to_string(event.block) + ", which it did not allocate";
    }
    blocks_[event.block].live = false;
    live_bytes_ -= blocks_[event.block].bytes;
    --live_count_;
    return {};
  }

  std::string begin_step() {
    if (in_step_) {
      return "there is a step already";
    }
    in_step_ = true;
    before_step_ = blocks_.size();
    live_before_step_ = live_count_;
    return {};
  }

  std::string end() const {
    return in_step_ && live_count_ != live_before_step_
               ? "the step keeps " + std::to_string(live_count_ - live_before_step_) +
                     " of the blocks that it allocates"
               : "";
  }

  std::uint64_t blocks() const { return blocks_.size(); }
  std::uint64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Block {
    std::uint64_t bytes = 0;
    bool live = false;
  };
  std::vector<Block> blocks_;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::uint64_t live_count_ = 0;
  bool in_step_ = false;
  std::uint64_t before_step_ = 0;
  std::uint64_t live_before_step_ = 0;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  AllocationLog read() {
    if (!next_line() || line_ != kFirstLine) {
      fail("is not '" + std::string(kFirstLine) + "'");
    }
    bool step = false;
    while (next_line()) {
      if (line_.empty() || line_.front() == '#') {
        continue;
      }
      if (line_ == kStep) {
        require(follower_.begin_step());
        log_.step_begin = log_.events.size();
        step = true;
      } else {
        log_.events.push_back(event());
        require(follower_.add(log_.events.back()));
      }
    }
    require(follower_.end());
    if (!step) {
      log_.step_begin = log_.events.size();
    }
    return std::move(log_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError("allocation log: line " + std::to_string(number_) + " " + what);
  }
  void require(const std::string& wrong) const {
    if (!wrong.empty()) {
      fail("cannot be: " + wrong);
    }
  }

  bool next_line() {
    if (rest_.empty()) {
      return false;
    }
    ++number_;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return true;
  }

  // Reads one space and a number, and removes both from `text`.
  template <class Number>
  Number number(std::string_view& text) const {
    Number value = 0;
    if (text.empty() || text.front() != ' ') {
      fail("lacks a number");
    }
    const char* const begin = text.data() + 1;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc()) {
      fail("has no number of " + std::to_string(std::numeric_limits<Number>::digits) + " bits in '" +
           std::string(text) + "'");
    }
    text = {stop, static_cast<std::size_t>(end - stop)};
    return value;
  }

  AllocationEvent event() const {
    AllocationEvent event;
    std::string_view text = line_.substr(1);
    switch (line_.front()) {
      case 'p':
        event.lasting = true;
        [[fallthrough]];
      case 'a':
        event.block = follower_.blocks();
        event.bytes = number<std::uint64_t>(text);
        break;
      case 'u':
      case 'f':
        event.kind = line_.front() == 'u' ? AllocationEvent::Kind::kUse : AllocationEvent::Kind::kFree;
        event.block = number<std::uint64_t>(text);
        break;
      default:
        fail("begins with none of p, a, u, f and step");
    }
    event.stream = number<std::uint32_t>(text);
    if (!text.empty()) {
      fail("has '" + std::string(text) + "' after its last field");
    }
    return event;
  }

  std::string_view rest_;
  std::string_view line_;
  std::uint64_t number_ = 0;
  Follower follower_;
  AllocationLog log_;
};

// Throws InvalidArgument for a log that could not be read.
Follower follow(const AllocationLog& log) {
  const auto require = [](const std::string& wrong) {
    if (!wrong.empty()) {
      throw InvalidArgument("this is no allocation log: " + wrong);
    }
  };
  require(log.step_begin > log.events.size() ? "its step begins after its end" : "");
  Follower follower;
  for (std::size_t i = 0; i < log.events.size(); ++i) {
    if (i == log.step_begin) {
      require(follower.begin_step());
    }
    require(follower.add(log.events[i]));
  }
  require(follower.end());
  return follower;
}

void write(std::ostream& out, const AllocationEvent& event) {
  switch (event.kind) {
    case AllocationEvent::Kind::kAllocate:
      out << (event.lasting ? "p " : "a ") << event.bytes;
      break;
    case AllocationEvent::Kind::kUse:
      out << "u " << event.block;
      break;
    case AllocationEvent::Kind::kFree:
      out << "f " << event.block;
      break;
  }
  out << " " << event.stream << "\n";
}

}  // namespace

AllocationLog read_allocation_log(std::string_view text) {
  return Reader(text).read();
}

void write_allocation_log(std::ostream& out, const AllocationLog& log) {
  follow(log);
  out << kFirstLine << "\n";
  for (std::size_t i = 0; i < log.events.size(); ++i) {
    if (i == log.step_begin) {
      out << kStep << "\n";
    }
    write(out, log.events[i]);
  }
}

std::uint64_t peak_live_bytes(const AllocationLog& log) {
  return follow(log).peak_bytes();
}

}  // namespace vdnn
