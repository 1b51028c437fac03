#include "src/ops/cpu/primitive_sequence.h"

#include <unordered_map>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn::cpu {

namespace {

// A cache line: oneDNN's alignment of scratchpads.
constexpr std::uint64_t kWorkspaceAlignment = 64;

class SequenceKernel final : public CpuKernel {
 public:
  SequenceKernel(const Context& context, std::vector<PrimitiveSequence::Place> places,
                 const std::vector<PrimitiveSequence::Step>& steps)
      : threads_(context.threads), stream_(context.engine), places_(std::move(places)) {
    memories_.reserve(places_.size());
    for (const auto& place : places_) {
      memories_.emplace_back(place.desc, context.engine, nullptr);
    }
    for (const auto& step : steps) {
      Call call{.primitive = dnnl::primitive(step.primitive.get()), .arguments = {}};
      for (const auto& argument : step.arguments) {
        call.arguments.emplace(argument.name, memories_[argument.place]);
      }
      calls_.push_back(std::move(call));
    }
  }

  void run(const OpOperands& operands, const StepScalars&) override {
    const ThreadScope scope(threads_);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      memories_[i].set_data_handle(pointer_to<void>(address(places_[i], operands)));
    }
    for (const Call& call : calls_) {
      call.primitive.execute(stream_, call.arguments);
    }
    stream_.wait();
  }

 private:
  struct Call {
    dnnl::primitive primitive;
    std::unordered_map<int, dnnl::memory> arguments;
  };

  static std::uint64_t address(const PrimitiveSequence::Place& place, const OpOperands& operands) {
    switch (place.source) {
      case PrimitiveSequence::Source::kRead:
        return operands.reads[place.position].begin;
      case PrimitiveSequence::Source::kWrite:
        return operands.writes[place.position].begin;
      case PrimitiveSequence::Source::kWorkspace:
        break;
    }
    return operands.workspace.begin + place.position;
  }

  int threads_;
  dnnl::stream stream_;
  std::vector<PrimitiveSequence::Place> places_;
  std::vector<dnnl::memory> memories_;  // by index in places_
  std::vector<Call> calls_;
};

}  // namespace

dnnl::primitive_attr scratchpad_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

PrimitiveSequence::PlaceIndex PrimitiveSequence::add(Source source, std::uint64_t position,
                                                     const dnnl::memory::desc& desc) {
  places_.push_back({.source = source, .position = position, .desc = desc});
  return places_.size() - 1;
}

PrimitiveSequence::PlaceIndex PrimitiveSequence::read(std::uint32_t operand, const dnnl::memory::desc& desc) {
  return add(Source::kRead, operand, desc);
}

PrimitiveSequence::PlaceIndex PrimitiveSequence::write(std::uint32_t operand,
                                                       const dnnl::memory::desc& desc) {
  return add(Source::kWrite, operand, desc);
}

PrimitiveSequence::PlaceIndex PrimitiveSequence::scratch(const dnnl::memory::desc& desc) {
  const std::uint64_t offset = workspace_bytes_;
  workspace_bytes_ = checked_add(offset, round_up(desc.get_size(), kWorkspaceAlignment));
  return add(Source::kWorkspace, offset, desc);
}

void PrimitiveSequence::append(const dnnl::primitive_desc_base& primitive, std::vector<Argument> arguments) {
  if (const dnnl::memory::desc scratchpad = primitive.scratchpad_desc(); scratchpad.get_size() > 0) {
    arguments.push_back({DNNL_ARG_SCRATCHPAD, scratch(scratchpad)});
  }
  steps_.push_back({.primitive = primitive, .arguments = std::move(arguments)});
}

void PrimitiveSequence::append_reorder(const dnnl::engine& engine, PlaceIndex from, PlaceIndex to) {
  const dnnl::reorder::primitive_desc reorder(engine, places_[from].desc, engine, places_[to].desc,
                                              scratchpad_attributes());
  append(reorder, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

std::unique_ptr<CpuKernel> PrimitiveSequence::build(const Context& context) const {
  return std::make_unique<SequenceKernel>(context, places_, steps_);
}

std::vector<Algorithm> algorithms_of(const std::vector<Implementation>& implementations) {
  std::vector<Algorithm> algorithms;
  algorithms.reserve(implementations.size());
  for (const Implementation& each : implementations) {
    algorithms.push_back({.name = each.name, .workspace_bytes = each.sequence.workspace_bytes()});
  }
  return algorithms;
}

std::unique_ptr<CpuKernel> build_requested(const Context& context,
                                           const std::vector<Implementation>& implementations,
                                           const KernelRequest& request) {
  const Algorithm& asked = request.op.algorithms[request.algorithm];
  if (request.algorithm >= implementations.size() || implementations[request.algorithm].name != asked.name ||
      implementations[request.algorithm].sequence.workspace_bytes() != asked.workspace_bytes) {
    throw InvalidArgument(
        "algorithm " + std::to_string(request.algorithm) + " ('" + asked.name + "', " +
        format_size(asked.workspace_bytes) +
        ") of the tape is not the algorithm of that index here. Make the tape again: it was made "
        "with another oneDNN, for another number of threads or on another machine");
  }
  return implementations[request.algorithm].sequence.build(context);
}

}  // namespace vdnn::cpu
