// clang-format off: these macros configure cudnn-frontend and must precede its headers. They make it open
// cuDNN at run time, and disable its log and its JSON files.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define NV_CUDNN_FRONTEND_DISABLE_LOGGING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
// clang-format on

#include "src/ops/cuda/convolution_engines.h"

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <utility>

#include "src/ops/cuda/channels_last.h"
#include "src/ops/cuda/convolution_op.h"
#include "src/ops/cuda/gpu_shortage.h"
#include "src/ops/cuda/kept_handles.h"
#include "streams/cuda/loaded_library.h"
#include "vdnn/error.h"

// cudnn-frontend looks up cuDNN's functions in this handle, which its user must define.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace vdnn::cuda {

namespace {

namespace fe = cudnn_frontend;

constexpr std::size_t kOldestThatPlansWithoutDevice = 90800;

std::string to_text(std::size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// cuDNN opens and closes NVRTC for every question, which takes as long as the rest of a plan. So this process
// opens NVRTC, too, and keeps it loaded. If cuDNN finds NVRTC but this process does not, no time is saved.
void keep_nvrtc_open() {
  try {
    LoadedLibrary("libnvrtc.so." + std::to_string(CUDART_VERSION / 1000));
  } catch (const DeviceError&) {
  }
}

void* open_cudnn() {
  keep_nvrtc_open();
  fe::cudnn_dlhandle = LoadedLibrary("libcudnn.so." + std::to_string(CUDNN_MAJOR)).handle();
  return fe::cudnn_dlhandle;
}

// cuDNN is opened once per process and never closed, since cudnn-frontend keeps the addresses of functions.
void require_cudnn() {
  static void* const kHandle = open_cudnn();
  static_cast<void>(kHandle);
}

// The first reason in cuDNN's message, on one line. The message has one reason per engine, separated by empty
// lines.
std::string first_reason(const std::string& message) {
  std::string reason = message.substr(0, message.find("\n\n"));
  std::ranges::replace(reason, '\n', ' ');
  return reason;
}

void require_memory(const std::string& message, const std::string& what) {
  if (tells_of_gpu_shortage(message)) {
    throw_out_of_memory(what + ": cuDNN: " + first_reason(message));
  }
}

void require(const fe::error_t& error, const EngineQuestion& question) {
  if (error.is_bad()) {
    require_memory(error.err_msg, to_string(question));
    throw NoEngine(question, first_reason(error.err_msg));
  }
}

fe::DataType_t data_type(DataType elements) {
  switch (elements) {
    case DataType::kF32:
      return fe::DataType_t::FLOAT;
    case DataType::kF16:
      return fe::DataType_t::HALF;
    case DataType::kBf16:
      return fe::DataType_t::BFLOAT16;
    case DataType::kI32:
      return fe::DataType_t::INT32;
    case DataType::kU8:
      return fe::DataType_t::UINT8;
  }
  throw InvalidArgument("there is no such element type");
}

fe::DataType_t sum_type(DataType elements) {
  const bool whole = elements == DataType::kI32 || elements == DataType::kU8;
  return whole ? fe::DataType_t::INT32 : fe::DataType_t::FLOAT;
}

NumericalNote note_of(cudnnBackendNumericalNote_t note) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      return NumericalNote::kTensorCore;
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      return NumericalNote::kDownConvertInputs;
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      return NumericalNote::kReducedPrecisionReduction;
    case CUDNN_NUMERICAL_NOTE_FFT:
      return NumericalNote::kFft;
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      return NumericalNote::kNondeterministic;
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
      return NumericalNote::kWinograd;
    case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
      return NumericalNote::kStrictNanPropagation;
    default:
      return NumericalNote::kUnknown;
  }
}

// The notes are queried from the plan, since cudnn-frontend's list lacks some of cuDNN's notes.
std::vector<NumericalNote> notes_of(const fe::ExecutionPlan& plan) {
  std::vector<NumericalNote> notes;
  for (const cudnnBackendNumericalNote_t note : plan.getAllNumericNotes()) {
    if (std::ranges::find(notes, note_of(note)) == notes.end()) {
      notes.push_back(note_of(note));
    }
  }
  return notes;
}

// One pass of a convolution as a graph of one node.
class ConvolutionGraph : public fe::graph::Graph {
 public:
  explicit ConvolutionGraph(const EngineQuestion& question)
      : c_(question.convolution), dims_(ops::dims_of(c_)), type_(data_type(question.elements)) {
    set_io_data_type(type_).set_intermediate_data_type(type_).set_compute_data_type(
        sum_type(question.elements));
    switch (question.direction) {
      case Direction::kForward:
        make(conv_fprop(tensor(kFirstRead, "X", dims_.x), tensor(kSecondRead, "W", dims_.filter),
                        attributes<fe::graph::Conv_fprop_attributes>()),
             dims_.y);
        return;
      case Direction::kBackwardData:
        make(conv_dgrad(tensor(kFirstRead, "dY", dims_.y), tensor(kSecondRead, "W", dims_.filter),
                        attributes<fe::graph::Conv_dgrad_attributes>()),
             dims_.x);
        return;
      case Direction::kBackwardFilter:
        make(conv_wgrad(tensor(kSecondRead, "dY", dims_.y), tensor(kFirstRead, "X", dims_.x),
                        attributes<fe::graph::Conv_wgrad_attributes>()),
             dims_.filter);
        return;
      case Direction::kUpdate:
        break;
    }
    throw InvalidArgument("a convolution has no update pass");
  }

  // Lists cuDNN's plans without building them. Plans are for the handle's GPU or, without a handle, for the
  // given device properties.
  void list_plans(const EngineQuestion& question, cudnnHandle_t handle = nullptr) {
    build_node(question, handle);
    require(create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), question);
  }

  // The name of the last engine that cuDNN recommends, without its fallbacks. Empty if cuDNN recommends at
  // most one engine.
  std::string last_recommended(const EngineQuestion& question) {
    build_node(question, nullptr);
    if (create_execution_plans({fe::HeurMode_t::A}).is_bad()) {
      return "";  // cuDNN has only fallbacks, for example for some questions in bf16
    }
    std::string name;
    const std::int64_t count = get_execution_plan_count();
    return count > 1 && get_plan_name_at_index(count - 1, name).is_good() ? name : "";
  }

  // Builds the first plan of this name and returns its index.
  std::int64_t build(const std::string& engine, const EngineQuestion& question) {
    for (std::int64_t i = 0; i < get_execution_plan_count(); ++i) {
      std::string name;
      if (get_plan_name_at_index(i, name).is_good() && name == engine) {
        require(build_plan_at_index(i), question);
        return i;
      }
    }
    throw NoEngine(question, "cuDNN " + to_text(fe::detail::get_backend_version()) + " lists no engine " +
                                 engine + " on this GPU");
  }

  // The shapes of the operands in the order in which cuDNN gets their addresses. Call list_plans() first.
  std::vector<Dims> operand_shapes(const EngineQuestion& question) {
    require(prepare_variant_pack_template(), question);
    std::vector<Dims> shapes;
    for (const std::int64_t uid : get_variant_pack_uids_sorted()) {
      fe::graph::Tensor_attributes operand;
      require(query_tensor_attributes_of_uid(uid, operand), question);
      shapes.push_back(operand.get_dim());
    }
    return shapes;
  }

  // The engines of all plans that can be built.
  std::vector<Engine> engines() {
    std::vector<Engine> built;
    std::set<std::string> names;
    for (std::int64_t i = 0; i < get_execution_plan_count(); ++i) {
      Engine engine;
      if (get_plan_name_at_index(i, engine.name).is_bad() || !names.insert(engine.name).second ||
          build_plan_at_index(i).is_bad()) {
        continue;
      }
      engine.workspace_bytes = static_cast<std::uint64_t>(get_workspace_size_plan_at_index(i));
      engine.notes = notes_of(*plans.get_execution_plans().at(static_cast<std::size_t>(i)));
      built.push_back(std::move(engine));
    }
    return built;
  }

 private:
  using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

  void build_node(const EngineQuestion& question, cudnnHandle_t handle) {
    require(validate(), question);
    require(handle == nullptr ? build_operation_graph() : build_operation_graph(handle), question);
  }

  // cudnn-frontend expects addresses in the order of the tensors' numbers. VendorOp::run() has the same
  // order.
  enum Operand : std::int64_t { kFirstRead = 1, kSecondRead, kWrite };

  Tensor tensor(Operand operand, const char* name, const Dims& dims) {
    return Graph::tensor(fe::graph::Tensor_attributes()
                             .set_name(name)
                             .set_uid(operand)
                             .set_dim(dims)
                             .set_stride(channels_last_strides(dims))
                             .set_data_type(type_));
  }
  static void make(const Tensor& result, const Dims& dims) {
    result->set_output(true).set_uid(kWrite).set_dim(dims).set_stride(channels_last_strides(dims));
  }
  template <class Attributes>
  Attributes attributes() const {
    Attributes attributes;
    attributes.set_padding(c_.padding).set_stride(c_.stride).set_dilation(ops::dilation_of(c_));
    return attributes;
  }

  const ops::Convolution& c_;
  ops::ConvolutionDims dims_;
  fe::DataType_t type_;
};

void move_to_end(std::vector<Engine>& engines, const std::string& name) {
  std::stable_partition(engines.begin(), engines.end(),
                        [&](const Engine& engine) { return engine.name != name; });
}

// A handle of the calling thread's GPU.
void* make_cudnn_handle() {
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = fe::detail::create_handle(&handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    require_memory(fe::detail::get_error_string(status), "cudnnCreate");
    throw DeviceError(std::string("cudnnCreate: ") + fe::detail::get_error_string(status));
  }
  return handle;
}

void require_device(const fe::error_t& error, const std::string& what) {
  if (error.is_bad()) {
    require_memory(error.err_msg, what);
    throw DeviceError(what + ": cuDNN: " + first_reason(error.err_msg));
  }
}

class ConvolutionOp final : public VendorOp {
 public:
  ConvolutionOp(const SharedCudnnHandle& shared, const EngineQuestion& question, const std::string& engine)
      : handle_(static_cast<cudnnHandle_t>(shared.handle)),
        mutex_(*shared.mutex),
        question_(question),
        graph_(question_) {
    const std::lock_guard lock(mutex_);
    graph_.list_plans(question_, handle_);
    plan_ = graph_.build(engine, question_);
  }

  std::uint64_t workspace_bytes() const override {
    return static_cast<std::uint64_t>(graph_.get_workspace_size_plan_at_index(plan_));
  }

  void run(const VendorOperands& operands, void* stream) const override {
    const std::lock_guard lock(mutex_);
    const cudnnStatus_t status = fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream));
    if (status != CUDNN_STATUS_SUCCESS) {
      throw DeviceError(to_string(question_) + ": cudnnSetStream: " + fe::detail::get_error_string(status));
    }
    std::array<void*, 3> addresses{pointer_to<void>(operands.reads[0].begin),
                                   pointer_to<void>(operands.reads[1].begin),
                                   pointer_to<void>(operands.write.begin)};
    require_device(graph_.execute_plan_at_index(handle_, addresses.data(), static_cast<int>(addresses.size()),
                                                pointer_to<void>(operands.workspace.begin), plan_),
                   to_string(question_));
  }

 private:
  cudnnHandle_t handle_;
  std::mutex& mutex_;
  EngineQuestion question_;
  ConvolutionGraph graph_;  // refers to the question
  std::int64_t plan_ = 0;
};

}  // namespace

std::string cudnn_version() {
  require_cudnn();
  return to_text(fe::detail::get_backend_version());
}

std::string cudnn_frontend_version() {
  return to_text(CUDNN_FRONTEND_VERSION);
}

struct ConvolutionEngines::Device {
  std::shared_ptr<const fe::DeviceProperties> properties;
};

ConvolutionEngines::ConvolutionEngines(std::string_view device_properties) {
  require_cudnn();
  const std::size_t version = fe::detail::get_backend_version();
  if (version < kOldestThatPlansWithoutDevice) {
    throw DeviceError("cuDNN " + to_text(version) + " cannot plan without a device; " +
                      to_text(kOldestThatPlansWithoutDevice) + " and later can");
  }
  auto properties = std::make_shared<fe::DeviceProperties>();
  const fe::error_t error = properties->deserialize({device_properties.begin(), device_properties.end()});
  if (error.is_bad()) {
    throw InvalidArgument("device properties for cuDNN: " + first_reason(error.err_msg));
  }
  device_ = std::make_unique<Device>(Device{std::move(properties)});
}

ConvolutionEngines::~ConvolutionEngines() = default;

std::vector<Dims> ConvolutionEngines::operand_shapes(const EngineQuestion& question) const {
  ConvolutionGraph graph(question);
  graph.set_device_properties(device_->properties);
  graph.list_plans(question);
  return graph.operand_shapes(question);
}

std::vector<Engine> ConvolutionEngines::do_list(const EngineQuestion& question) const {
  ConvolutionGraph graph(question);
  graph.set_device_properties(device_->properties);
  graph.list_plans(question);
  std::vector<Engine> engines = graph.engines();
  if (engines.empty()) {
    throw NoEngine(question, "cuDNN can build none of the engines that it lists");
  }
  ConvolutionGraph recommended(question);
  recommended.set_device_properties(device_->properties);
  if (const std::string last = recommended.last_recommended(question); is_generic_engine(last)) {
    move_to_end(engines, last);
  }
  return engines;
}

std::string ConvolutionEngines::name() const {
  return "cudnn " + cudnn_version();
}

std::unique_ptr<const EngineSource> engines_of_this_gpu(int ordinal) {
  require_cudnn();
  const KeptHandle handle(cudnn_handles(), ordinal, make_cudnn_handle);
  fe::DeviceProperties properties;
  std::vector<std::uint8_t> text;
  constexpr const char* kWhat = "properties of this GPU";
  require_device(properties.set_handle(static_cast<cudnnHandle_t>(handle.get())).build(), kWhat);
  require_device(properties.serialize(text), kWhat);
  return std::make_unique<ConvolutionEngines>(std::string(text.begin(), text.end()));
}

std::unique_ptr<VendorOp> make_convolution_op(const SharedCudnnHandle& shared, const EngineQuestion& question,
                                              const std::string& engine) {
  require_cudnn();
  return std::make_unique<ConvolutionOp>(shared, question, engine);
}

}  // namespace vdnn::cuda
