#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "src/plan/schedule_builder.h"

namespace vdnn {

namespace {

// Builds a network-wide schedule, like Torch's: buffers exist from before the first step to the end. Every
// value has its own buffer, except gradient maps. These share buffers of the largest gradient map's size.
// There are as many such buffers as gradient maps are alive at once, and at least two. All ops share one
// workspace.
class NetworkWideBuilder : public ScheduleBuilder {
 public:
  using ScheduleBuilder::ScheduleBuilder;

  Schedule run() {
    place_persistent_values();
    for (const ValueId input : tape_.inputs()) {
      place_persistent(input);
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      place(id);
    }
    while (gradient_buffers_.size() < 2) {
      add_gradient_buffer();
    }
    const std::uint64_t largest_workspace = workspace_bytes(tape_, plan_);
    if (largest_workspace > 0) {
      workspace_ = add_buffer("workspace", largest_workspace, Space::kDevice, true);
    }
    for (const ValueId input : tape_.inputs()) {
      emit_load(input);
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      emit_launch(id, workspace_of(id) > 0 ? workspace_ : kNone);
      emit_read_results(id);
    }
    return finish();
  }

 private:
  void place(OpId id) {
    place_writes(id, [this, id](ValueId value) {
      if (tape_.value(value).kind == ValueKind::kGradientMap) {
        location_[value] = free_gradient_buffer(id);
        holders_[location_[value]] = value;  // so that the op's next write is placed in another buffer
      } else {
        place_persistent(value);
      }
    });
    for (const ValueId value : tape_.op(id).writes) {
      holders_[location_[value]] = value;
    }
  }

  BufferId free_gradient_buffer(OpId id) {
    for (const BufferId buffer : gradient_buffers_) {
      const auto holder = holders_.find(buffer);
      if (holder == holders_.end() || tape_.last_use(holder->second) < id) {
        return buffer;
      }
    }
    return add_gradient_buffer();
  }

  BufferId add_gradient_buffer() {
    std::uint64_t largest = 1;
    for (const Value& value : tape_.values()) {
      if (value.kind == ValueKind::kGradientMap) {
        largest = std::max(largest, value.bytes);
      }
    }
    const auto number = std::to_string(gradient_buffers_.size());
    gradient_buffers_.push_back(add_buffer("gradient maps " + number, largest, Space::kDevice, true));
    return gradient_buffers_.back();
  }

  std::vector<BufferId> gradient_buffers_;
  std::map<BufferId, ValueId> holders_;  // by buffer: the last value that was placed in it
  BufferId workspace_ = kNone;
};

}  // namespace

Schedule build_network_wide_schedule(const Tape& tape, const Plan& plan) {
  return NetworkWideBuilder(tape, plan).run();
}

}  // namespace vdnn
