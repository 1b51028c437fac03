#pragma once
// Optimal persistent checkpointing of a chain of stages in a memory limit. This is the dynamic program that
// the tool rotor implements. Its source is Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal
// checkpointing for heterogeneous chains: how to train deep neural networks with limited memory" (2019).
//
// The program solves stretches of stages whose input is on the device. A forward pass over a stretch (a
// *sweep*) has two choices. It can save all that the backward pass of the stretch's first stage reads. Or it
// can keep only the output of some stage and continue with the next stage. Then the stages up to the kept
// output are swept again, after the backward pass of the later stages. Persistent means that a kept value is
// not dropped before its backward pass has used it. Memory is counted in slots of equal size, and sizes are
// rounded up.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace vdnn::peers {

struct Stage {
  double forward_seconds = 0;
  double backward_seconds = 0;
  std::uint64_t output_bytes = 0;    // bytes of the values that the next stage reads
  std::uint64_t saved_bytes = 0;     // bytes of the values that the backward pass reads, including the output
  std::uint64_t forward_bytes = 0;   // bytes that the forward pass needs in addition to input and output
  std::uint64_t backward_bytes = 0;  // bytes that the backward pass needs in addition to saved values
};

// For one stage: the sweep that saves its output, and the sweep that saves all that its backward pass reads.
// The number of a sweep is the index of the stage whose backward pass follows it. The first sweep is the
// forward pass of the step; its number is the length of the chain.
struct Saving {
  std::size_t output = 0;
  std::size_t all = 0;
};

class Rotor {
 public:
  // `limits`: the number of slots into which `most_bytes` are divided.
  Rotor(std::vector<Stage> chain, std::uint64_t most_bytes, std::size_t limits);

  // The seconds of the forward and the backward pass in `limit` slots; infinite if there are too few slots.
  double seconds(std::size_t limit) const { return best(0, chain_.size() - 1, limit).seconds; }
  // The saving of each stage with which the passes take seconds(limit). Empty if there are too few slots.
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
