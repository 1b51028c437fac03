#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/plan/lowering.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

// Decisions in the order in which they take effect; ops are lowered in ascending order.
template <class Decision>
class Agenda {
 public:
  Agenda(std::span<const Decision> decisions, OpId Decision::*when) : when_(when) {
    for (const Decision& decision : decisions) {
      sorted_.push_back(&decision);
    }
    std::ranges::stable_sort(sorted_, {}, [when](const Decision* decision) { return decision->*when; });
  }

  // Those of `op`. Asked for each op once, in ascending order.
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

// Of two prefetches that are issued together the one that is needed first goes first: a demand fetch must not
// queue behind what is fetched ahead.
std::vector<Transfer> by_need(const Tape& tape, std::vector<Transfer> transfers) {
  std::ranges::stable_sort(transfers, {}, [&tape](const Transfer& transfer) {
    const std::span<const OpId> readers = tape.readers(transfer.value);
    const auto found = std::ranges::lower_bound(readers, transfer.prefetch_with);
    return found == readers.end() ? kNone : *found;
  });
  return transfers;
}

// When the lives of values end (plan.h).
class Lives {
 public:
  Lives(const Tape& tape, const Plan& plan) : tape_(tape) {
    for (const Recomputation& recomputation : plan.recomputations) {
      recomputed_.emplace_back(recomputation.value, recomputation.with);
    }
    for (const Transfer& transfer : plan.transfers) {
      released_.emplace_back(transfer.value, transfer.release_with);
    }
    std::ranges::sort(recomputed_);
    std::ranges::sort(released_);
  }

  // The op that uses the value last in the life that begins with `start`, unless a transfer ends it earlier.
  // An op before `start`: the life has no use. kNone: the value has none.
  OpId end(ValueId value, OpId start) const {
    const OpId made_again = first(recomputed_, value, start + 1);
    const OpId released = first(released_, value, start);
    return last_use_before(value, released < made_again ? kNone : made_again);
  }

 private:
  using Event = std::pair<ValueId, OpId>;

  // The value's first event from op `from` on; kNone: there is none.
  static OpId first(const std::vector<Event>& events, ValueId value, OpId from) {
    const auto found = std::ranges::lower_bound(events, Event(value, from));
    return found == events.end() || found->first != value ? kNone : found->second;
  }

  OpId last_use_before(ValueId value, OpId op) const {
    const std::span<const OpId> readers = tape_.readers(value);
    const auto found = std::ranges::lower_bound(readers, op);
    return found == readers.begin() ? tape_.producer(value) : *(found - 1);
  }

  const Tape& tape_;
  std::vector<Event> recomputed_;
  std::vector<Event> released_;
};

// A transfer that copies to the host: the op of the last fetch from its copy.
std::vector<OpId> last_fetches(std::span<const Transfer> transfers) {
  std::vector<std::size_t> order(transfers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t each) {
    return std::pair(transfers[each].value, transfers[each].prefetch_with);
  });
  std::vector<OpId> result(transfers.size(), kNone);
  std::size_t copy = 0;  // that those fetch from which have none of their own
  for (const std::size_t each : order) {
    if (transfers[each].offload_with != kNone) {
      copy = each;
    }
    if (transfers[copy].value == transfers[each].value) {
      result[copy] = transfers[each].prefetch_with;
    }
  }
  return result;
}

class LayerWiseLowering : public Lowering {
 public:
  LayerWiseLowering(const Tape& tape, const Plan& plan)
      : Lowering(tape, plan),
        needed_(by_need(tape, plan.transfers)),
        offloads_(plan.transfers, &Transfer::offload_with),
        releases_(plan.transfers, &Transfer::release_with),
        prefetches_(needed_, &Transfer::prefetch_with),
        recomputations_(plan.recomputations, &Recomputation::with),
        lives_(tape, plan),
        last_fetch_of_(last_fetches(plan.transfers)),
        host_(tape.values().size(), kNone),
        last_fetch_(tape.values().size(), kNone),
        away_(tape.values().size(), false),
        passing_(tape.values().size(), false),
        last_read_again_(tape.values().size(), kNone) {
    for (ValueId id = 0; id < tape.values().size(); ++id) {
      const OpId producer = tape.producer(id);
      death_.push_back(lives_.end(id, producer == kNone ? 0 : producer));
    }
  }

  Schedule run(std::vector<std::uint32_t>* first_instructions) {
    const auto mark = [&] {
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
      mark();
      lower(id);
    }
    mark();
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

  void lower(OpId id) {
    const auto prefetches = prefetches_.of(id);
    for (const Transfer* transfer : prefetches) {
      prefetch(*transfer);
    }
    recompute(id, recomputations_.of(id));
    // The copy starts beside the op: what it reads has been ready since its producer.
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

  InvalidArgument refusal(ValueId value, const std::string& what, OpId with, const std::string& why) const {
    return InvalidArgument("the plan wants " + tape_.value(value).name + " to be " + what + " with " +
                           tape_.op(with).name + ", " + why);
  }

  // Where the value is. A plan that moves what is not there cannot be lowered.
  BufferId require_place(const std::vector<BufferId>& places, ValueId value, const char* what,
                         OpId with) const {
    if (places[value] == kNone) {
      throw refusal(value, what, with, "where it is not there");
    }
    return places[value];
  }

  // Nor one that brings what is there.
  void require_absence(ValueId value, const char* what, OpId with) const {
    if (location_[value] != kNone) {
      throw refusal(value, what, with, "where it is there already");
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
    const BufferId device = require_place(location_, transfer.value, "offloaded", transfer.offload_with);
    if (host_[transfer.value] != kNone) {
      throw refusal(transfer.value, "offloaded", transfer.offload_with,
                    "where a fetch from an earlier copy is still to come");
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
    const BufferId device = require_place(location_, transfer.value, "released", transfer.release_with);
    if (host_[transfer.value] == kNone) {
      throw refusal(transfer.value, "released", transfer.release_with, "where it has no copy on the host");
    }
    release(device, StreamRole::kOffload);
    location_[transfer.value] = kNone;
    away_[transfer.value] = true;
  }

  void prefetch(const Transfer& transfer) {
    const Value& value = tape_.value(transfer.value);
    const OpId with = transfer.prefetch_with;
    const BufferId host = require_place(host_, transfer.value, "fetched", with);
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

  // Their memory belongs to what has overwritten them.
  void forget_overwritten(OpId id) {
    const Op& op = tape_.op(id);
    for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
      if (const auto read = overwritten_read(tape_, id, write)) {
        location_[op.reads[*read]] = kNone;
      }
    }
  }

  // --- making values again ---------------------------------------------------------------------------------
  // Launches, in the tape's order, all ops that it takes to have the values before op `with`.
  void recompute(OpId with, std::span<const Recomputation* const> recomputations) {
    std::vector<ValueId> staying;
    for (const Recomputation* recomputation : recomputations) {
      require_absence(recomputation->value, "made again", with);
      staying.push_back(recomputation->value);
    }
    const std::vector<OpId> producers = producers_of(staying, with);
    for (const OpId id : producers) {
      for (const ValueId read : tape_.op(id).reads) {
        last_read_again_[read] = id;
      }
    }
    for (const OpId id : producers) {
      for (const ValueId value : tape_.op(id).writes) {
        passing_[value] = !is_there(value);
      }
    }
    for (const ValueId value : staying) {
      death_[value] = lives_.end(value, with);
      passing_[value] = death_[value] < with;
    }
    for (const OpId id : producers) {
      launch_again(id);
    }
    for (const OpId id : producers) {
      for (const ValueId read : tape_.op(id).reads) {
        last_read_again_[read] = kNone;
      }
      for (const ValueId value : tape_.op(id).writes) {
        passing_[value] = false;
      }
    }
  }

  // And of all that those read and that is not there, in ascending order.
  std::vector<OpId> producers_of(std::vector<ValueId> missing, OpId with) const {
    std::vector<OpId> producers;
    std::vector<bool> found(with, false);
    while (!missing.empty()) {
      const ValueId value = missing.back();
      missing.pop_back();
      const OpId producer = tape_.producer(value);
      if (away_[value]) {
        throw refusal(value, "made again", with, "where it is on the host");
      }
      if (producer == kNone || producer >= with || !may_run_again(tape_, producer)) {
        throw refusal(value, "made again", with, "which cannot be");
      }
      if (found[producer]) {
        continue;
      }
      found[producer] = true;
      producers.push_back(producer);
      for (const ValueId read : tape_.op(producer).reads) {
        if (location_[read] == kNone) {
          missing.push_back(read);
        }
      }
    }
    std::ranges::sort(producers);
    return producers;
  }

  // Is it on the device or away on the host, so that nobody needs another?
  bool is_there(ValueId value) const { return location_[value] != kNone || away_[value]; }

  void launch_again(OpId id) {
    const Op& op = tape_.op(id);
    Instruction again{.kind = InstructionKind::kRecompute, .stream = StreamRole::kCompute, .op = id};
    for (const ValueId value : op.reads) {
      again.operands.push_back(location_[value]);
    }
    std::vector<BufferId> unused;  // copies of what is there already
    for (std::uint32_t write = 0; write < op.writes.size(); ++write) {
      const ValueId value = op.writes[write];
      const auto read = overwritten_read(tape_, id, write);
      const bool wanted = !is_there(value);
      if (wanted && read) {
        location_[value] = std::exchange(location_[op.reads[*read]], kNone);
        again.operands.push_back(location_[value]);
      } else {
        again.operands.push_back(allocate(tape_.value(value).name + " (recomputed)", tape_.value(value).bytes,
                                          Space::kDevice, StreamRole::kCompute));
        (wanted ? location_[value] : unused.emplace_back()) = again.operands.back();
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

  // After its last use among what is made again.
  void release_passing(ValueId value, OpId id) {
    const OpId last = last_read_again_[value];
    if (passing_[value] && location_[value] != kNone && (last == kNone || last == id)) {
      release(location_[value], StreamRole::kCompute);
      location_[value] = kNone;
    }
  }

  // --- the end of values -----------------------------------------------------------------------------------
  // Releases what this op used last in a life.
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

  std::vector<Transfer> needed_;  // by the op that needs it first
  Agenda<Transfer> offloads_;
  Agenda<Transfer> releases_;
  Agenda<Transfer> prefetches_;
  Agenda<Recomputation> recomputations_;
  Lives lives_;
  std::vector<OpId> last_fetch_of_;  // of Plan::transfers
  // Of values:
  std::vector<OpId> death_;            // the op after which the memory of the present life is given back
  std::vector<BufferId> host_;         // the copy on the host
  std::vector<OpId> last_fetch_;       // the op of the last fetch from that copy
  std::vector<bool> away_;             // on the host only
  std::vector<bool> passing_;          // made again only for others that are made again with the same op
  std::vector<OpId> last_read_again_;  // the last of the ops that are launched again to read it
};

}  // namespace

Schedule lower_layer_wise(const Tape& tape, const Plan& plan,
                          std::vector<std::uint32_t>* first_instructions) {
  return LayerWiseLowering(tape, plan).run(first_instructions);
}

}  // namespace vdnn
