#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/plan/lives.h"
#include "src/plan/recomputation.h"
#include "src/plan/schedule_builder.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

// A plan's decisions of one kind, for example its offloads, returned op by op.
template <class Decision>
class Agenda {
 public:
  Agenda(std::span<const Decision> decisions, OpId Decision::*when) : when_(when) {
    for (const Decision& decision : decisions) {
      sorted_.push_back(&decision);
    }
    std::ranges::stable_sort(sorted_, {}, [when](const Decision* decision) { return decision->*when; });
  }

  // The decisions that take effect with `op`. Call it once for each op, in ascending order.
  std::span<const Decision* const> of(OpId op) {
    const std::size_t begin = next_;
    while (next_ < sorted_.size() && sorted_[next_]->*when_ == op) {
      ++next_;
    }
    return std::span(sorted_).subspan(begin, next_ - begin);
  }

 private:
  OpId Decision::*when_;
  std::vector<const Decision*> sorted_;
  std::size_t next_ = 0;
};

// Sorts the prefetches that begin with the same op by the first read of their values. So a value that is
// needed at once is fetched before values that are fetched ahead.
std::vector<Transfer> in_order_of_need(const Tape& tape, std::vector<Transfer> transfers) {
  std::ranges::stable_sort(transfers, {}, [&tape](const Transfer& transfer) {
    const std::span<const OpId> readers = tape.readers(transfer.value);
    const auto found = std::ranges::lower_bound(readers, transfer.prefetch_with);
    return found == readers.end() ? kNone : *found;
  });
  return transfers;
}

class LayerWiseBuilder : public ScheduleBuilder {
 public:
  LayerWiseBuilder(const Tape& tape, const Plan& plan)
      : ScheduleBuilder(tape, plan),
        needed_(in_order_of_need(tape, plan.transfers)),
        offloads_(plan.transfers, &Transfer::offload_with),
        releases_(plan.transfers, &Transfer::release_with),
        prefetches_(needed_, &Transfer::prefetch_with),
        recomputations_(plan.recomputations, &Recomputation::with),
        lives_(tape, plan),
        last_fetch_of_(last_fetches(plan.transfers)),
        relaunches_(plan.recomputations.empty() ? std::vector<Relaunch>() : relaunches_of(tape)),
        search_(tape, relaunches_),
        host_(tape.values().size(), kNone),
        last_fetch_(tape.values().size(), kNone),
        away_(tape.values().size(), false),
        passing_(tape.values().size(), false) {
    for (ValueId id = 0; id < tape.values().size(); ++id) {
      const OpId producer = tape.producer(id);
      death_.push_back(lives_.end(id, producer == kNone ? 0 : producer));
    }
  }

  Schedule run(std::vector<std::uint32_t>* first_instructions) {
    const auto note_first_instruction = [&] {
      if (first_instructions != nullptr) {
        first_instructions->push_back(static_cast<std::uint32_t>(schedule_.instructions.size()));
      }
    };
    place_persistent_values();
    for (const ValueId input : tape_.inputs()) {
      allocate_value(input, StreamRole::kLoad);
      emit_load(input);
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      note_first_instruction();
      schedule_op(id);
    }
    note_first_instruction();
    require_fetched();
    return finish();
  }

 private:
  BufferId allocate(std::string name, std::uint64_t bytes, Space space, StreamRole stream) {
    const BufferId buffer = add_buffer(std::move(name), bytes, space, false);
    emit({.kind = InstructionKind::kAllocate, .stream = stream, .buffer = buffer});
    return buffer;
  }

  void allocate_value(ValueId id, StreamRole stream) {
    location_[id] = allocate(tape_.value(id).name, tape_.value(id).bytes, Space::kDevice, stream);
  }

  BufferId allocate_workspace(OpId id) {
    return workspace_of(id) == 0 ? kNone
                                 : allocate(tape_.op(id).name + ".workspace", workspace_of(id),
                                            Space::kDevice, StreamRole::kCompute);
  }

  void release(BufferId buffer, StreamRole stream) {
    emit({.kind = InstructionKind::kRelease, .stream = stream, .buffer = buffer});
  }

  void schedule_op(OpId id) {
    const auto prefetches = prefetches_.of(id);
    for (const Transfer* transfer : prefetches) {
      prefetch(*transfer);
    }
    recompute(id, recomputations_.of(id));
    // These copies run at the same time as the op, since their values were made earlier.
    const auto offloads = offloads_.of(id);
    for (const Transfer* transfer : offloads) {
      if (tape_.producer(transfer->value) != id) {
        offload(*transfer);
      }
    }
    launch(id);
    emit_read_results(id);
    for (const Transfer* transfer : offloads) {
      if (tape_.producer(transfer->value) == id) {
        offload(*transfer);
      }
    }
    for (const Transfer* transfer : releases_.of(id)) {
      leave(*transfer);
    }
    release_dead(id);
    for (const Transfer* transfer : prefetches) {
      release_if_dead(transfer->value, id);
    }
  }

  // The error for a plan that moves or makes a value at an op at which that is impossible.
  InvalidArgument refusal(ValueId value, const std::string& what, OpId with, const std::string& why) const {
    return InvalidArgument("the plan has " + tape_.value(value).name + " " + what + " with " +
                           tape_.op(with).name + ", but " + why);
  }

  BufferId require_on_device(ValueId value, const char* what, OpId with) const {
    if (location_[value] == kNone) {
      throw refusal(value, what, with, "it is not on the device");
    }
    return location_[value];
  }

  BufferId require_on_host(ValueId value, const char* what, OpId with) const {
    if (host_[value] == kNone) {
      throw refusal(value, what, with, "it is not on the host");
    }
    return host_[value];
  }

  void require_absence(ValueId value, const char* what, OpId with) const {
    if (location_[value] != kNone) {
      throw refusal(value, what, with, "it is on the device already");
    }
  }

  void require_fetched() const {
    const auto forgotten = std::ranges::find_if(host_, [](BufferId host) { return host != kNone; });
    if (forgotten != host_.end()) {
      throw InvalidArgument("the plan leaves " +
                            tape_.value(static_cast<ValueId>(forgotten - host_.begin())).name +
                            " on the host at the end of the step");
    }
  }

  void offload(const Transfer& transfer) {
    const Value& value = tape_.value(transfer.value);
    const BufferId device = require_on_device(transfer.value, "offloaded", transfer.offload_with);
    if (host_[transfer.value] != kNone) {
      throw refusal(transfer.value, "offloaded", transfer.offload_with,
                    "a fetch from an earlier copy is still to come");
    }
    const BufferId host = allocate(value.name + " (host)", value.bytes, Space::kHost, StreamRole::kOffload);
    host_[transfer.value] = host;
    last_fetch_[transfer.value] =
        last_fetch_of_[static_cast<std::size_t>(&transfer - plan_.transfers.data())];
    emit({.kind = InstructionKind::kOffload,
          .stream = StreamRole::kOffload,
          .value = transfer.value,
          .buffer = device,
          .host_buffer = host});
  }

  void leave(const Transfer& transfer) {
    const BufferId device = require_on_device(transfer.value, "released", transfer.release_with);
    if (host_[transfer.value] == kNone) {
      throw refusal(transfer.value, "released", transfer.release_with, "it has no copy on the host");
    }
    release(device, StreamRole::kOffload);
    location_[transfer.value] = kNone;
    away_[transfer.value] = true;
  }

  void prefetch(const Transfer& transfer) {
    const Value& value = tape_.value(transfer.value);
    const OpId with = transfer.prefetch_with;
    const BufferId host = require_on_host(transfer.value, "fetched", with);
    require_absence(transfer.value, "fetched", with);
    const BufferId buffer =
        allocate(value.name + " (prefetched)", value.bytes, Space::kDevice, StreamRole::kPrefetch);
    location_[transfer.value] = buffer;
    away_[transfer.value] = false;
    death_[transfer.value] = std::max(with, lives_.end(transfer.value, with));
    emit({.kind = InstructionKind::kPrefetch,
          .stream = StreamRole::kPrefetch,
          .value = transfer.value,
          .buffer = buffer,
          .host_buffer = host});
    if (last_fetch_[transfer.value] == with) {
      release(host, StreamRole::kPrefetch);
      host_[transfer.value] = kNone;
    }
  }

  void launch(OpId id) {
    place_writes(id, [this](ValueId value) { allocate_value(value, StreamRole::kCompute); });
    const BufferId workspace = allocate_workspace(id);
    emit_launch(id, workspace);
    if (workspace != kNone) {
      release(workspace, StreamRole::kCompute);
    }
    forget_overwritten(id);
  }

  // After this, the memory of an overwritten operand belongs to the result that overwrites it.
  void forget_overwritten(OpId id) {
    const Op& op = tape_.op(id);
    for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
      if (const auto read = overwritten_read(tape_, id, write)) {
        location_[op.reads[*read]] = kNone;
      }
    }
  }

  // --- recomputation (recomputation.h) ---------------------------------------------------------------------
  void recompute(OpId with, std::span<const Recomputation* const> recomputations) {
    std::vector<ValueId> staying;
    for (const Recomputation* recomputation : recomputations) {
      require_absence(recomputation->value, "recomputed", with);
      staying.push_back(recomputation->value);
    }
    search_.run(
        staying,
        [this, with](ValueId value) {
          require_recomputable(value, with);
          return true;
        },
        [this](ValueId read) { return location_[read] != kNone; });
    for (const OpId id : search_.ops()) {
      for (const ValueId value : tape_.op(id).writes) {
        passing_[value] = !is_there(value);
      }
    }
    for (const ValueId value : staying) {
      death_[value] = lives_.end(value, with);
      passing_[value] = death_[value] < with;
    }
    for (const OpId id : search_.ops()) {
      launch_again(id);
    }
    for (const OpId id : search_.ops()) {
      for (const ValueId value : tape_.op(id).writes) {
        passing_[value] = false;
      }
    }
  }

  void require_recomputable(ValueId value, OpId with) const {
    const OpId producer = tape_.producer(value);
    if (away_[value]) {
      throw refusal(value, "recomputed", with, "it is on the host");
    }
    if (producer == kNone || producer >= with || !may_run_again(tape_, producer)) {
      throw refusal(value, "recomputed", with, "its producer cannot run again");
    }
  }

  // Whether the value is on the device or on the host. If it is, a second launch of its producer writes a
  // copy that is not used.
  bool is_there(ValueId value) const { return location_[value] != kNone || away_[value]; }

  void launch_again(OpId id) {
    const Op& op = tape_.op(id);
    Instruction again{.kind = InstructionKind::kRecompute, .stream = StreamRole::kCompute, .op = id};
    for (const ValueId value : op.reads) {
      again.operands.push_back(location_[value]);
    }
    std::vector<BufferId> unused;
    for (const Relaunch::Made& made : relaunches_[id].makes) {
      const bool needed = !is_there(made.value);
      if (needed && made.overwrites != kNone) {
        location_[made.value] = std::exchange(location_[made.overwrites], kNone);
        again.operands.push_back(location_[made.value]);
      } else {
        again.operands.push_back(allocate(tape_.value(made.value).name + " (recomputed)",
                                          tape_.value(made.value).bytes, Space::kDevice,
                                          StreamRole::kCompute));
        (needed ? location_[made.value] : unused.emplace_back()) = again.operands.back();
      }
    }
    const BufferId workspace = allocate_workspace(id);
    again.operands.push_back(workspace);
    emit(std::move(again));
    if (workspace != kNone) {
      release(workspace, StreamRole::kCompute);
    }
    for (const BufferId buffer : unused) {
      release(buffer, StreamRole::kCompute);
    }
    for (const ValueId value : op.reads) {
      release_passing(value, id);
    }
    for (const ValueId value : op.writes) {
      release_passing(value, id);
    }
  }

  // Releases the value after its last use among the ops that are launched again.
  void release_passing(ValueId value, OpId id) {
    const OpId last = search_.last_reader(value);
    if (passing_[value] && location_[value] != kNone && (last == kNone || last == id)) {
      release(location_[value], StreamRole::kCompute);
      location_[value] = kNone;
    }
  }

  // --- the end of lives ------------------------------------------------------------------------------------
  // Releases the operands whose lives end with this op.
  void release_dead(OpId id) {
    const Op& op = tape_.op(id);
    for (const ValueId value : op.reads) {
      release_if_dead(value, id);
    }
    for (const ValueId value : op.writes) {
      release_if_dead(value, id);
    }
  }

  void release_if_dead(ValueId value, OpId id) {
    if (!tape_.value(value).persistent() && death_[value] == id && location_[value] != kNone) {
      release(location_[value], StreamRole::kCompute);
      location_[value] = kNone;
    }
  }

  std::vector<Transfer> needed_;  // in order of the first op that reads the value after the fetch
  Agenda<Transfer> offloads_;
  Agenda<Transfer> releases_;
  Agenda<Transfer> prefetches_;
  Agenda<Recomputation> recomputations_;
  Lives lives_;
  std::vector<OpId> last_fetch_of_;   // by transfer of the plan: the op of the last fetch from its copy
  std::vector<Relaunch> relaunches_;  // empty if the plan recomputes nothing
  RelaunchSearch search_;
  // Each of these has one element per value.
  std::vector<OpId> death_;       // the op after which the memory of the current life is released
  std::vector<BufferId> host_;    // the copy on the host
  std::vector<OpId> last_fetch_;  // the op of the last fetch from the copy on the host
  std::vector<bool> away_;        // whether the value is only on the host
  std::vector<bool> passing_;     // whether it is passing (recomputation.h)
};

}  // namespace

Schedule build_layer_wise_schedule(const Tape& tape, const Plan& plan,
                                   std::vector<std::uint32_t>* first_instructions) {
  return LayerWiseBuilder(tape, plan).run(first_instructions);
}

}  // namespace vdnn
