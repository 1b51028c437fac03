#pragma once
// A lower bound on the time of a step in a given amount of memory. bound.cpp proves it.

#include <cstdint>
#include <vector>

#include "src/plan/optimal/problem.h"

namespace vdnn::optimal {

class Bound {
 public:
  explicit Bound(const Problem& problem);

  // `device_bytes`: parameters included. `enough`: seconds; once the bound reaches it, the rest is not
  // computed.
  double seconds(std::uint64_t device_bytes, double enough);

 private:
  // Values of one producer.
  struct Made {
    double bytes = 0;
    std::vector<OpId> ops;  // the producer, and those that run again with it
    double seconds = 0;     // of them
  };
  // Values that can be made again, in order of price: the sums of all up to and with each.
  struct Sums {
    double bytes = 0;
    double seconds = 0;
  };
  // The values that are alive when an op starts.
  struct Crossing {
    OpId slot = 0;
    double bytes = 0;
    std::vector<Made> made;   // those that an op can make again and that the slot's op does not read
    std::vector<Sums> again;  // the cheapest first
  };

  Crossing crossing(OpId slot) const;
  void find_least(double room);
  void find_prices();
  double seconds_at(const Crossing& alive, double room) const;
  double split(const Crossing& alive, double excess, double before, double after) const;

  const Problem& problem_;
  std::vector<double> operands_;     // an op: bytes that it needs beside its workspace
  std::vector<double> fresh_;        // an op: of results that take no read's place
  std::vector<Crossing> crossings_;  // of the fullest slots
  std::vector<double> least_;        // an op: seconds of the fastest algorithm that fits
  std::vector<double> before_;       // an op: the sum of those before it
  double total_ = 0;
};

}  // namespace vdnn::optimal
