#include "vdnn/learned_step.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// A saved tensor that is read in the step, and the ops that make and read it.
struct SavedTensor {
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;
  OpId made = 0;
  std::set<OpId> readers;
};

// Op k is the stretch from event k - 1 to event k. The first op begins with the step, and the last op ends
// with it.
OpId op_after(std::size_t event) {
  return static_cast<OpId>(event + 1);
}

// Returns the tensors that are read. Other tensors count only among the bytes in use.
std::vector<SavedTensor> saved_tensors(const LearnedStep& step) {
  std::vector<SavedTensor> tensors;
  std::vector<OpId> held_until;
  for (std::size_t event = 0; event < step.events.size(); ++event) {
    const StepEvent& at = step.events[event];
    if (at.kind == StepEvent::Kind::kSave) {
      tensors.push_back(
          {.number = at.tensor, .bytes = at.bytes, .made = static_cast<OpId>(event), .readers = {}});
      held_until.push_back(at.held_until.value_or(op_after(event)));
    } else {
      tensors[at.tensor].readers.insert(op_after(event));
    }
  }
  std::erase_if(tensors, [](const SavedTensor& tensor) { return tensor.readers.empty(); });
  for (SavedTensor& tensor : tensors) {
    for (OpId op = tensor.made + 1; op <= held_until[tensor.number]; ++op) {
      tensor.readers.insert(op);
    }
  }
  return tensors;
}

// By op: the bytes of the tensors that exist while the op runs.
std::vector<std::uint64_t> tensor_bytes(const std::vector<SavedTensor>& tensors, std::size_t ops) {
  std::vector<std::uint64_t> bytes(ops, 0);
  for (const SavedTensor& tensor : tensors) {
    for (OpId op = tensor.made; op <= *tensor.readers.rbegin(); ++op) {
      bytes[op] = checked_add(bytes[op], tensor.bytes);
    }
  }
  return bytes;
}

// By op: all bytes in use while the op runs. The peak of the step may be higher than the bytes at any event.
// Then the peak is assumed to be in the stretch with the most bytes in use.
std::vector<std::uint64_t> bytes_in_use(const LearnedStep& step) {
  std::vector<std::uint64_t> bytes(step.events.size() + 1, 0);
  for (std::size_t event = 0; event < step.events.size(); ++event) {
    const StepEvent& at = step.events[event];
    bytes[event] = std::max({bytes[event], at.in_use_bytes, at.peak_bytes.value_or(0)});
    bytes[event + 1] = at.in_use_bytes;
  }
  std::uint64_t& most = *std::ranges::max_element(bytes);
  most = std::max(most, step.peak_bytes);
  return bytes;
}

// Scales bytes and seconds from the step's own batch to another batch.
class Proportion {
 public:
  Proportion(std::int64_t batch, std::int64_t own)
      : batch_(static_cast<std::uint64_t>(batch)), own_(static_cast<std::uint64_t>(own)) {}

  std::uint64_t bytes(std::uint64_t bytes) const {
    const std::uint64_t whole = checked_multiply(bytes / own_, batch_);
    const std::uint64_t rest = checked_multiply(bytes % own_, batch_);
    return checked_add(whole, rest / own_ + (rest % own_ > 0 ? 1 : 0));
  }
  double seconds(double seconds) const {
    return batch_ == own_ ? seconds : seconds * (static_cast<double>(batch_) / static_cast<double>(own_));
  }

 private:
  std::uint64_t batch_;
  std::uint64_t own_;
};

class StepTape {
 public:
  StepTape(const LearnedStep& step, Proportion proportion)
      : step_(step), proportion_(proportion), tensors_(saved_tensors(step)) {}

  Tape::Parts build() && {
    parts_.model = step_.program;
    add_ops();
    for (const SavedTensor& tensor : tensors_) {
      add_tensor(tensor);
    }
    add_layers();
    add_bytes_in_use();
    return std::move(parts_);
  }

 private:
  std::size_t ops() const { return step_.events.size() + 1; }

  // Adds an op for each stretch. The backward pass begins with the first read of a tensor.
  void add_ops() {
    const auto first_read = std::ranges::find(step_.events, StepEvent::Kind::kRead, &StepEvent::kind);
    const auto forward_ops = static_cast<std::size_t>(first_read - step_.events.begin()) + 1;
    std::vector<std::uint32_t> reads(step_.events.size(), 0);  // by tensor: the reads so far
    double begin = 0;
    for (std::size_t id = 0; id < ops(); ++id) {
      const double end = id < step_.events.size() ? step_.events[id].seconds : step_.seconds;
      Op& op = parts_.ops.emplace_back();
      op.name = id == 0 ? "start" : name_after(step_.events[id - 1], reads);
      op.phase = id < forward_ops ? Phase::kForward : Phase::kBackward;
      op.direction = id < forward_ops ? Direction::kForward : Direction::kBackwardData;
      op.spec = CustomSpec{};
      op.algorithms = {{.name = "recorded"}};
      // A cost that is not positive would count as not measured.
      op.cost.seconds = std::max(proportion_.seconds(end - begin), std::numeric_limits<double>::min());
      begin = end;
    }
  }

  // The name of an op: "tensor3.saved", "tensor3.read", "tensor3.read2".
  static std::string name_after(const StepEvent& event, std::vector<std::uint32_t>& reads) {
    const std::string tensor = name_of(event.tensor);
    if (event.kind == StepEvent::Kind::kSave) {
      return tensor + ".saved";
    }
    const std::uint32_t nth = ++reads[event.tensor];
    return tensor + ".read" + (nth == 1 ? "" : std::to_string(nth));
  }
  static std::string name_of(std::uint32_t tensor) { return "tensor" + std::to_string(tensor); }

  void add_tensor(const SavedTensor& tensor) {
    const std::string name = name_of(tensor.number);
    const ValueId value =
        add_value(name, ValueKind::kFeatureMap, proportion_.bytes(tensor.bytes), tensor.made);
    for (const OpId reader : tensor.readers) {
      parts_.ops[reader].reads.push_back(value);
    }
  }

  // Makes each tensor a layer. Policy `all` then fetches each tensor one read ahead, while the op that reads
  // the preceding tensor runs.
  void add_layers() {
    std::map<std::uint32_t, std::uint32_t> layers;
    for (const SavedTensor& tensor : tensors_) {
      layers.emplace(tensor.number, static_cast<std::uint32_t>(parts_.layers.size()));
      parts_.layers.push_back({.name = name_of(tensor.number)});
    }
    for (std::size_t event = 0; event < step_.events.size(); ++event) {
      if (const auto layer = layers.find(step_.events[event].tensor); layer != layers.end()) {
        parts_.ops[op_after(event)].layer = layer->second;
      }
    }
  }

  ValueId add_value(std::string name, ValueKind kind, std::uint64_t bytes, OpId made) {
    const auto value = static_cast<ValueId>(parts_.values.size());
    parts_.values.push_back({.name = std::move(name),
                             .kind = kind,
                             .type = {.data_type = DataType::kU8,
                                      .dims = {static_cast<std::int64_t>(bytes)},
                                      .layout = Layout::kChannelsLast},
                             .bytes = bytes});
    parts_.ops[made].writes.push_back(value);
    return value;
  }

  // Adds the bytes in use that belong to no saved tensor. Their minimum is in use throughout the step; the
  // rest is the workspace of ops.
  void add_bytes_in_use() {
    std::vector<std::uint64_t> others = bytes_in_use(step_);
    const std::vector<std::uint64_t> tensors = tensor_bytes(tensors_, ops());
    for (std::size_t op = 0; op < ops(); ++op) {
      others[op] -= std::min(others[op], tensors[op]);
    }
    const std::uint64_t resident = std::ranges::min(others);
    if (resident > 0) {
      add_resident(resident);
    }
    for (std::size_t op = 0; op < ops(); ++op) {
      parts_.ops[op].algorithms.front().workspace_bytes = proportion_.bytes(others[op] - resident);
    }
  }

  // Adds a value of `bytes` that every op reads, so that no plan moves it.
  void add_resident(std::uint64_t bytes) {
    const ValueId resident = add_value("resident", ValueKind::kSaved, bytes, 0);
    for (std::size_t op = 1; op < ops(); ++op) {
      parts_.ops[op].reads.push_back(resident);
    }
  }

  const LearnedStep& step_;
  const Proportion proportion_;
  const std::vector<SavedTensor> tensors_;
  Tape::Parts parts_;
};

}  // namespace

std::int64_t batch_of(const LearnedStep& step) {
  return step.batch.value_or(1);
}

std::shared_ptr<const Tape> to_tape(const LearnedStep& step, std::int64_t batch) {
  const std::int64_t own = batch_of(step);
  if (batch <= 0) {
    throw InvalidArgument("batch " + std::to_string(batch) + ": must be at least 1");
  }
  if (batch != own && !step.batch) {
    throw InvalidArgument("batch " + std::to_string(batch) + ": the learned step of " + step.program +
                          " does not say how many samples it has; export it with its batch");
  }
  return std::make_shared<const Tape>(StepTape(step, Proportion(batch, own)).build());
}

}  // namespace vdnn
