#pragma once
// Optimal persistent checkpointing of a chain of stages in a memory limit: the dynamic program of Beaumont,
// Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous chains: how to train
// deep neural networks with limited memory" (2019), which the tool rotor implements.
//
// The program solves stretches of stages whose input is on the device. A forward pass over a stretch (a
// *sweep*) has two choices. It saves all that the backward pass of the stretch's first stage reads. Or it
// keeps only the output of some stage and continues from there. The stages up to that one are then swept
// again, after the backward pass of the later stages. Persistent means that nothing is dropped before its
// backward pass has used it. Memory is counted in equal slots, with sizes rounded up.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace vdnn::peers {

struct Stage {
  double forward_seconds = 0;
  double backward_seconds = 0;
  std::uint64_t output_bytes = 0;    // values that the next stage reads
  std::uint64_t saved_bytes = 0;     // values that the backward pass reads, including the output
  std::uint64_t forward_bytes = 0;   // needed by the forward pass in addition to input and output
  std::uint64_t backward_bytes = 0;  // needed by the backward pass in addition to saved values
};

// The sweeps that save the output of a stage, and all that its backward pass reads. A sweep is identified by
// the stage whose backward pass follows it; the forward pass itself has the number of stages.
struct Saving {
  std::size_t output = 0;
  std::size_t all = 0;
};

class Rotor {
 public:
  // `most_bytes` are divided into `limits` slots.
  Rotor(std::vector<Stage> chain, std::uint64_t most_bytes, std::size_t limits);

  // Seconds of the forward and the backward pass in `limit` slots; infinite if those are too few.
  double seconds(std::size_t limit) const { return best(0, chain_.size() - 1, limit).seconds; }
  // The savings of each stage that take seconds(limit). Empty if there are too few slots.
  std::optional<std::vector<Saving>> savings(std::size_t limit) const;

 private:
  struct Best {
    double seconds = 0;
    std::size_t next = 0;  // the first stage after the kept output; 0 if all of the first stage is saved
  };

  const Best& best(std::size_t first, std::size_t last, std::size_t limit) const {
    return best_[(first * chain_.size() + last) * (limits_ + 1) + limit];
  }
  Best find_best(std::size_t first, std::size_t last, std::size_t limit) const;
  void consider_saving_all(std::size_t first, std::size_t last, std::size_t limit, Best& found) const;
  void consider_keeping_one(std::size_t first, std::size_t last, std::size_t limit, Best& found) const;
  void follow(std::size_t first, std::size_t last, std::size_t limit, std::size_t sweep,
              std::vector<Saving>& savings) const;
  std::size_t slots(std::uint64_t bytes) const { return (bytes + slot_bytes_ - 1) / slot_bytes_; }

  std::vector<Stage> chain_;
  std::size_t limits_;
  std::uint64_t slot_bytes_;
  std::vector<Best> best_;  // by first stage, last stage and limit
};

}  // namespace vdnn::peers
