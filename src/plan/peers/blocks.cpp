#include "src/plan/peers/blocks.h"

#include <algorithm>
#include <variant>

#include "src/plan/overwrite.h"
#include "src/plan/readers.h"

namespace vdnn::peers {

namespace {

class BlockFinder {
 public:
  explicit BlockFinder(const Tape& tape) : tape_(tape) {}

  std::vector<Block> at_forks_and_joins() {
    return split([this](OpId op) {
      return needed_.size() == 1 && is_border(needed_.front()) && !is_overwritten_by(needed_.front(), op + 1);
    });
  }

  std::vector<Block> at_layers_with_weights() {
    return split([this](OpId op) { return op + 1 < tape_.forward_ops() && has_weights(tape_.op(op + 1)); });
  }

 private:
  template <class EndsBlock>
  std::vector<Block> split(const EndsBlock& ends_block) {
    std::vector<Block> blocks;
    begin_ = 0;
    needed_.clear();
    for (OpId op = 0; op < tape_.forward_ops(); ++op) {
      const auto& writes = tape_.op(op).writes;
      needed_.insert(needed_.end(), writes.begin(), writes.end());
      std::erase_if(needed_, [&](ValueId value) { return !is_needed_after(value, op); });
      if (op + 1 == tape_.forward_ops() || ends_block(op)) {
        blocks.push_back({.begin = begin_, .end = op + 1});
        begin_ = op + 1;
        needed_.clear();
      }
    }
    return blocks;
  }

  bool is_needed_after(ValueId value, OpId op) const {
    const OpId last = last_forward_reader(tape_, value);
    return !tape_.value(value).persistent() && last != kNone && last > op;
  }

  bool is_border(ValueId value) const { return forks(value) || joins(tape_.producer(value)); }

  bool forks(ValueId value) const {
    const auto in_forward = [this](OpId reader) { return reader < tape_.forward_ops(); };
    return std::ranges::count_if(tape_.readers(value), in_forward) > 1;
  }

  // Whether the op joins several feature maps: for example an addition, or a ReLU that overwrites an
  // addition's result.
  bool joins(OpId op) const {
    const auto is_map = [this](ValueId value) { return tape_.value(value).kind == ValueKind::kFeatureMap; };
    return std::ranges::count_if(tape_.op(op).reads, is_map) > 1 ||
           std::ranges::any_of(overwritten_by(op), [this](ValueId value) {
             return tape_.producer(value) != kNone && joins(tape_.producer(value));
           });
  }

  bool is_overwritten_by(ValueId value, OpId op) const {
    const std::vector<ValueId> overwritten = overwritten_by(op);
    return std::ranges::find(overwritten, value) != overwritten.end();
  }

  std::vector<ValueId> overwritten_by(OpId op) const {
    std::vector<ValueId> values;
    for (std::uint32_t write = 0; write < tape_.op(op).writes.size(); ++write) {
      if (const auto read = overwritten_read(tape_, op, write)) {
        values.push_back(tape_.op(op).reads[*read]);
      }
    }
    return values;
  }

  static bool has_weights(const Op& op) {
    return std::holds_alternative<ConvolutionSpec>(op.spec) ||
           std::holds_alternative<TransposedConvolutionSpec>(op.spec) ||
           std::holds_alternative<FullyConnectedSpec>(op.spec);
  }

  const Tape& tape_;
  OpId begin_ = 0;
  // Values of the current block that the forward pass reads after the current op.
  std::vector<ValueId> needed_;
};

}  // namespace

std::vector<Block> find_blocks(const Tape& tape) {
  BlockFinder finder(tape);
  std::vector<Block> blocks = finder.at_forks_and_joins();
  return blocks.size() > 1 ? blocks : finder.at_layers_with_weights();
}

std::vector<Block> join_blocks(const std::vector<Block>& blocks, std::size_t count) {
  const std::size_t segments = std::clamp<std::size_t>(count, 1, std::max<std::size_t>(blocks.size(), 1));
  std::vector<Block> joined;
  for (std::size_t segment = 0; segment < segments && !blocks.empty(); ++segment) {
    const std::size_t first = segment * blocks.size() / segments;
    const std::size_t last = (segment + 1) * blocks.size() / segments - 1;
    joined.push_back({.begin = blocks[first].begin, .end = blocks[last].end});
  }
  return joined;
}

}  // namespace vdnn::peers
