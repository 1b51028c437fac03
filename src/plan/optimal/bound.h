#pragma once
// A lower bound on the time of a step in a given amount of memory. bound.cpp proves it.

#include <cstdint>
#include <vector>

#include "src/plan/optimal/problem.h"

namespace vdnn::optimal {

class Bound {
 public:
  explicit Bound(const Problem& problem);
  // Like Bound(problem), but takes less time. `other` must be the bound of a problem that differs from
  // `problem` only in its workspace limit.
  Bound(const Problem& problem, const Bound& other);

  // Returns the bound in seconds. `device_bytes` include parameters. The computation stops once the bound
  // reaches `enough` seconds.
  double seconds(std::uint64_t device_bytes, double enough);

 private:
  // The values of one producer.
  struct Made {
    double bytes = 0;
    std::vector<OpId> ops;  // the producer, and the ops that run again with it
    double seconds = 0;     // for all of `ops`
  };
  // Sums over the values that can be made again, in order of price, up to and including one of them.
  struct Sums {
    double bytes = 0;
    double seconds = 0;
  };
  // The values that are alive when an op starts.
  struct Crossing {
    OpId slot = 0;
    double bytes = 0;
    std::vector<Made> made;   // values that an op can make again and that the slot's op does not read
    std::vector<Sums> again;  // one element per value, the cheapest value first
  };

  Crossing crossing(OpId slot) const;
  void find_least(double room);
  void find_prices();
  double seconds_at(const Crossing& alive, double room) const;
  double split(const Crossing& alive, double excess, double before, double after) const;

  const Problem& problem_;
  std::vector<double> operands_;     // by op: the bytes that it needs in addition to its workspace
  std::vector<double> fresh_;        // by op: bytes of its results that overwrite no operand
  std::vector<Crossing> crossings_;  // at the fullest slots
  std::vector<double> least_;        // by op: seconds of the fastest algorithm that fits
  std::vector<double> before_;       // by op: the sum of least_ over the ops before it
  double total_ = 0;
};

}  // namespace vdnn::optimal
