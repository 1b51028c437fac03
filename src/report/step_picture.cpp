#include "src/report/step_picture.h"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "src/plan/residency.h"
#include "src/report/step_time.h"
#include "vdnn/error.h"

namespace vdnn {

std::string to_string(Content content) {
  constexpr std::array<const char*, kContents> kNames{
      "parameters",    "optimizer state",     "inputs",    "feature maps", "saved for backward",
      "gradient maps", "parameter gradients", "workspace", "results"};
  return kNames[static_cast<std::size_t>(content)];
}

namespace {

Content content_of(ValueKind kind) {
  switch (kind) {
    case ValueKind::kInput:
    case ValueKind::kTarget:
      return Content::kInputs;
    case ValueKind::kParameter:
    case ValueKind::kParameterCopy:
      return Content::kParameters;
    case ValueKind::kOptimizerState:
    case ValueKind::kLossScale:
      return Content::kOptimizerState;
    case ValueKind::kFeatureMap:
      return Content::kFeatureMaps;
    case ValueKind::kSaved:
    case ValueKind::kGradientStatistic:
      return Content::kSaved;
    case ValueKind::kGradientMap:
      return Content::kGradientMaps;
    case ValueKind::kGradientSum:
    case ValueKind::kParameterGradient:
      return Content::kParameterGradients;
    case ValueKind::kMetrics:
    case ValueKind::kGradientNorm:
      break;
  }
  return Content::kResults;
}

Content content_of(const Tape& tape, ValueId value) {
  return value == kNone ? Content::kWorkspace : content_of(tape.value(value).kind);
}

bool moves_memory(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kAllocate || instruction.kind == InstructionKind::kRelease;
}

// Makes a picture; each part builds on the previous ones.
class Painter {
 public:
  explicit Painter(const PlannedRun& run)
      : tape_(*run.tape),
        schedule_(run.schedule),
        prediction_(run.prediction),
        step_(*run.prediction.step),
        residences_(residences(tape_, schedule_)) {
    picture_.step_seconds = prediction_.step_seconds;
  }

  StepPicture paint() && {
    add_work();
    add_stays();
    add_stalls();
    add_handed_out();
    add_decisions();
    add_peak();
    return std::move(picture_);
  }

 private:
  double begin_of(std::uint32_t instruction) const {
    return step_.times[instruction].begin_seconds - step_.begin_seconds;
  }
  double end_of(std::uint32_t instruction) const {
    return step_.times[instruction].end_seconds - step_.begin_seconds;
  }
  const PicturedWork& work(std::uint32_t index) const { return picture_.work[index]; }

  void add_work() {
    for (std::uint32_t index = 0; index < schedule_.instructions.size(); ++index) {
      const Instruction& instruction = schedule_.instructions[index];
      work_of_.push_back(moves_memory(instruction) ? kNone
                                                   : static_cast<std::uint32_t>(picture_.work.size()));
      if (!moves_memory(instruction)) {
        instruction_of_.push_back(index);
        picture_.work.push_back(
            {.kind = instruction.kind,
             .stream = instruction.stream,
             .op = instruction.op,
             .phase = instruction.op == kNone ? Phase::kForward : tape_.op(instruction.op).phase,
             .value = instruction.value,
             .begin = begin_of(index),
             .end = end_of(index)});
      }
    }
  }

  // One use of a buffer.
  struct Use {
    std::uint32_t work = 0;
    ValueId value = kNone;
    friend bool operator==(const Use&, const Use&) = default;
  };

  // By buffer: all uses in order; an op that reads and writes a value in place uses it once.
  std::vector<std::vector<Use>> uses_of_buffers() const {
    std::vector<std::vector<Use>> result(schedule_.buffers.size());
    for (std::uint32_t index = 0; index < schedule_.instructions.size(); ++index) {
      for (const BufferUse& use : uses(tape_, schedule_.instructions[index])) {
        const Use found{.work = work_of_[index], .value = use.value};
        std::vector<Use>& known = result[use.buffer];
        if (known.empty() || known.back() != found) {
          known.push_back(found);
        }
      }
    }
    return result;
  }

  void add_stays() {
    const std::vector<std::vector<Use>> used = uses_of_buffers();
    std::uint64_t lowest = ~std::uint64_t{0};
    for (const Residence& residence : residences_) {
      lowest = std::min(lowest, step_.placements[residence.buffer].begin);
    }
    for (const Residence& residence : residences_) {
      const std::size_t first = picture_.stays.size();
      for (const Holding& holding : residence.holdings) {
        add_stay(residence.buffer, holding.value, used[residence.buffer], lowest);
      }
      hand_over(std::span(picture_.stays).subspan(first), schedule_.buffers[residence.buffer].persistent);
    }
  }

  void add_stay(BufferId buffer, ValueId value, std::span<const Use> used, std::uint64_t lowest) {
    const AddressRange& place = step_.placements[buffer];
    Stay stay{.value = value,
              .content = content_of(tape_, value),
              .address = place.begin - lowest,
              .bytes = place.bytes,
              .work = {}};
    for (const Use& use : used) {
      if (use.value == value) {
        stay.work.push_back(use.work);
      }
    }
    stay.begin = work(stay.work.front()).begin;
    stay.end = stay.begin;
    for (const std::uint32_t index : stay.work) {
      stay.end = std::max(stay.end, work(index).end);
    }
    set_needed(stay);
    picture_.stays.push_back(std::move(stay));
  }

  // Copies before the first launch fetch the value; those after the last launch offload it.
  void set_needed(Stay& stay) const {
    stay.needed_from = stay.end;
    stay.needed_until = stay.begin;
    for (const std::uint32_t index : stay.work) {
      if (is_launch(work(index).kind)) {
        stay.needed_from = std::min(stay.needed_from, work(index).begin);
        stay.needed_until = std::max(stay.needed_until, work(index).end);
      }
    }
    stay.needed_until = std::max(stay.needed_until, stay.needed_from);
  }

  // The values of one buffer take turns: each occupies the buffer until the next one does. In a buffer that
  // is never freed, the last value stays until the first one is made again.
  void hand_over(std::span<Stay> turns, bool persistent) const {
    for (std::size_t turn = 0; turn < turns.size(); ++turn) {
      Stay& stay = turns[turn];
      if (turn + 1 < turns.size()) {
        stay.end = turns[turn + 1].begin;
      } else if (persistent) {
        stay.end = turns.front().begin + picture_.step_seconds;
      }
      if (persistent) {
        stay.needed_from = stay.begin;
        stay.needed_until = stay.end;
      }
      stay.needed_until = std::min(stay.needed_until, stay.end);
      stay.needed_from = std::min(stay.needed_from, stay.needed_until);
    }
  }

  void add_stalls() {
    constexpr std::string_view kPrefix = "wait for ";
    for (const TraceEvent& event : prediction_.trace) {
      if (event.kind == TraceEvent::Kind::kWait &&
          prediction_.stream_names[event.stream] == to_string(StreamRole::kCompute)) {
        picture_.stalls.push_back({.begin = event.begin_seconds - step_.begin_seconds,
                                   .end = event.end_seconds - step_.begin_seconds,
                                   .awaited = event.name.substr(kPrefix.size())});
      }
    }
  }

  void add_handed_out() {
    in_use_ = bytes_in_use(schedule_);
    for (std::uint32_t index = 0; index < schedule_.instructions.size(); ++index) {
      if (moves_memory(schedule_.instructions[index])) {
        picture_.handed_out.push_back({.seconds = begin_of(index), .bytes = in_use_[index]});
      }
    }
  }

  static bool decided(ValueKind kind) {
    return kind == ValueKind::kInput || kind == ValueKind::kTarget || kind == ValueKind::kFeatureMap ||
           kind == ValueKind::kSaved;
  }

  void add_decisions() {
    constexpr std::size_t kUndecided = ~std::size_t{0};
    std::vector<std::size_t> of_value(tape_.values().size(), kUndecided);
    for (ValueId value = 0; value < tape_.values().size(); ++value) {
      if (decided(tape_.value(value).kind)) {
        of_value[value] = picture_.decisions.size();
        picture_.decisions.push_back(
            {.value = value, .offloads = {}, .prefetches = {}, .recomputations = {}});
      }
    }
    const auto note = [&](ValueId value, std::vector<std::uint32_t> Decision::*list, std::uint32_t index) {
      if (of_value[value] != kUndecided) {
        (picture_.decisions[of_value[value]].*list).push_back(index);
      }
    };
    for (std::uint32_t index = 0; index < picture_.work.size(); ++index) {
      const PicturedWork& done = work(index);
      if (done.kind == InstructionKind::kOffload) {
        note(done.value, &Decision::offloads, index);
      } else if (done.kind == InstructionKind::kPrefetch) {
        note(done.value, &Decision::prefetches, index);
      } else if (done.kind == InstructionKind::kRecompute) {
        for (const ValueId made : tape_.op(done.op).writes) {
          note(made, &Decision::recomputations, index);
        }
      }
    }
    const std::vector<ValueDecision> fates = decisions_of(tape_, schedule_);
    const StepTime time = step_time(schedule_, prediction_);
    for (Decision& decision : picture_.decisions) {
      decision.fate = fates[decision.value];
      decision.hidden_share = hidden_share_of(time, decision);
    }
  }

  std::optional<double> hidden_share_of(const StepTime& time, const Decision& decision) const {
    std::vector<std::uint32_t> copies;
    for (const auto* const list : {&decision.offloads, &decision.prefetches}) {
      for (const std::uint32_t index : *list) {
        copies.push_back(instruction_of_[index]);
      }
    }
    return copies.empty() ? std::nullopt : std::optional(hidden_share(time, prediction_, copies));
  }

  void add_peak() {
    const std::uint32_t fullest = fullest_launch(schedule_, in_use_);
    if (fullest == kNone) {
      return;
    }
    const auto moment = static_cast<std::uint32_t>(std::ranges::max_element(in_use_) - in_use_.begin());
    picture_.peak = {.op = schedule_.instructions[fullest].op,
                     .seconds = begin_of(moment),
                     .bytes = in_use_[moment],
                     .residents = {}};
    for (const Residence& residence : residences_) {
      if (residence.present(moment)) {
        const ValueId value = residence.value_at(moment);
        picture_.peak.residents.push_back(
            {.name = value == kNone ? schedule_.buffers[residence.buffer].name : tape_.value(value).name,
             .content = content_of(tape_, value),
             .bytes = schedule_.buffers[residence.buffer].bytes});
      }
    }
    std::ranges::stable_sort(picture_.peak.residents, std::ranges::greater{}, &Resident::bytes);
  }

  const Tape& tape_;
  const Schedule& schedule_;
  const Prediction& prediction_;
  const TracedStep& step_;
  const std::vector<Residence> residences_;
  std::vector<std::uint32_t> work_of_;         // by instruction; kNone if it allocates or frees memory
  std::vector<std::uint32_t> instruction_of_;  // by work
  std::vector<std::uint64_t> in_use_;          // by instruction
  StepPicture picture_;
};

}  // namespace

StepPicture picture_of(const PlannedRun& run) {
  if (!run.prediction.step) {
    throw InvalidArgument("the prediction of '" + run.tape->model() + "' was made without a trace");
  }
  return Painter(run).paint();
}

}  // namespace vdnn
