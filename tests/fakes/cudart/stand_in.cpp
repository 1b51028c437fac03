#include "tests/fakes/cudart/stand_in.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "src/base/environment.h"
#include "streams/mapping.h"
#include "tests/fakes/thread_number.h"
#include "vdnn/size.h"

namespace vdnn::stand_in {

namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const std::string text = environment(name).value_or("");
  return text.empty() ? otherwise : parse_size(text);
}

Settings read_settings() {
  Settings settings;
  settings.fake.seed = number("VDNN_STAND_IN_SEED", 0);
  settings.fake.memory_bytes = number("VDNN_STAND_IN_MEMORY", std::uint64_t{1} << 30);
  settings.fake.gpus = static_cast<int>(number("VDNN_STAND_IN_GPUS", 1));
  settings.fake.virtual_memory = number("VDNN_STAND_IN_VIRTUAL_MEMORY", 1) != 0;
  settings.fail_every = number("VDNN_STAND_IN_FAIL_EVERY", 0);
  settings.fail_percent = static_cast<unsigned>(number("VDNN_STAND_IN_FAIL_PERCENT", 0));
  settings.lost_wait = number("VDNN_STAND_IN_LOSE_WAIT", 0);
  settings.report = environment("VDNN_STAND_IN_REPORT").value_or("");
  return settings;
}

std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

bool is_allocation(std::string_view name) {
  return name.starts_with("cudaMalloc") || name == "cudaHostAlloc" || name == "cuMemCreate";
}

// Runs at the end of the process, after destructors of static objects and atexit() functions.
__attribute__((destructor)) void report() {
  StandIn::instance().write_report();
}

}  // namespace

StandIn& StandIn::instance() {
  static StandIn* const instance = new StandIn(read_settings());
  return *instance;
}

StandIn::StandIn(Settings settings)
    : settings_(std::move(settings)), fake_(settings_.fake), random_(settings_.fake.seed) {
  if (!settings_.report.empty()) {
    report_.open(settings_.report);
  }
  fake_.lose_call(settings_.lost_wait, "cudaStreamWaitEvent");
}

bool StandIn::is_in_child(std::string_view name) const {
  const bool is_child = getpid() != process_;
  if (is_child) {
    std::fprintf(stderr, "stand-in: %.*s is called in a child of fork()\n", static_cast<int>(name.size()),
                 name.data());
  }
  return is_child;
}

void StandIn::enter_thread() {
  // The runtime makes its context current on each thread that calls it.
  if (threads_.insert(thread_number()).second) {
    fake_.set_device(ordinal());
  }
}

CudaStatus StandIn::next_failure(std::string_view name) {
  ++failable_calls_;
  constexpr unsigned kPercents = 100;
  const bool fails = (settings_.fail_every != 0 && failable_calls_ % settings_.fail_every == 0) ||
                     (settings_.fail_percent != 0 && random_() % kPercents < settings_.fail_percent);
  if (!fails) {
    return CudaStatus::kSuccess;
  }
  failed_.emplace_back(name);
  // These errors leave the device working.
  return is_allocation(name) ? CudaStatus::kMemoryAllocation
                             : static_cast<CudaStatus>(cudaErrorOperatingSystem);
}

// The driver's calls set no last error.
cudaError_t StandIn::finish(std::string_view name, CudaStatus status) {
  const auto error = static_cast<cudaError_t>(status);
  if (error != cudaSuccess && error != cudaErrorNotReady && name.starts_with("cuda")) {
    last_errors_[thread_number()] = error;
  }
  return error;
}

cudaError_t StandIn::take_last_error(bool forget) {
  const std::lock_guard lock(mutex_);
  cudaError_t& last = last_errors_[thread_number()];
  return forget ? std::exchange(last, cudaSuccess) : last;
}

// --- streams -----------------------------------------------------------------------------------------------

int StandIn::ordinal() {
  int found = 0;
  fake_.get_device(found);
  return found;
}

Stream* StandIn::find_made(cudaStream_t handle) {
  const auto it = std::ranges::find(streams_, static_cast<const void*>(handle),
                                    [](const auto& each) -> const void* { return each.get(); });
  return it == streams_.end() || (*it)->fake == nullptr ? nullptr : it->get();
}

CudaStream StandIn::find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    return fake_.stream_of(handle);
  }
  const Stream* const made = find_made(handle);
  return made == nullptr ? nullptr : made->fake;
}

CudaStatus StandIn::create(cudaStream_t& handle, bool blocking, int priority) {
  CudaStream made = nullptr;
  const CudaStatus status = blocking ? fake_.stream_create_blocking(made) : fake_.stream_create(made);
  if (status != CudaStatus::kSuccess) {
    return status;
  }
  const auto free = std::ranges::find(streams_, nullptr, [](const auto& each) { return each->fake; });
  std::unique_ptr<Stream>& place =
      free == streams_.end() ? streams_.emplace_back(std::make_unique<Stream>()) : *free;
  *place = {.fake = made,
            .ordinal = ordinal(),
            .blocking = blocking,
            .priority = std::clamp(priority, kGreatestPriority, 0)};
  handle = reinterpret_cast<cudaStream_t>(place.get());
  return CudaStatus::kSuccess;
}

CudaStatus StandIn::destroy(cudaStream_t handle) {
  Stream* const mine = find_made(handle);
  if (mine == nullptr) {
    return CudaStatus::kInvalidResourceHandle;
  }
  const CudaStatus status = fake_.stream_destroy(mine->fake);
  if (status == CudaStatus::kSuccess) {
    mine->fake = nullptr;
  }
  return status;
}

CudaStatus StandIn::flags_of(cudaStream_t handle, unsigned& flags) {
  if (find(handle) == nullptr) {
    return CudaStatus::kInvalidResourceHandle;
  }
  const Stream* const made = find_made(handle);
  flags = made == nullptr || made->blocking ? cudaStreamDefault : cudaStreamNonBlocking;
  return CudaStatus::kSuccess;
}

CudaStatus StandIn::priority_of(cudaStream_t handle, int& priority) {
  if (find(handle) == nullptr) {
    return CudaStatus::kInvalidResourceHandle;
  }
  const Stream* const made = find_made(handle);
  priority = made == nullptr ? 0 : made->priority;
  return CudaStatus::kSuccess;
}

int StandIn::ordinal_of(cudaStream_t handle) {
  const Stream* const made = find_made(handle);
  return made == nullptr ? ordinal() : made->ordinal;
}

CudaStatus StandIn::launch(cudaStream_t stream) {
  const CudaStream mine = find(stream);
  return mine == nullptr ? CudaStatus::kInvalidResourceHandle : FakeCuda::launch(mine, [] {});
}

CudaStatus StandIn::add_event(CudaEvent event) {
  events_.insert(event);
  return CudaStatus::kSuccess;
}

CudaStatus StandIn::remove_event(CudaEvent event) {
  if (!events_.contains(event)) {
    return CudaStatus::kInvalidResourceHandle;
  }
  const CudaStatus status = fake_.event_destroy(event);
  if (status == CudaStatus::kSuccess) {
    events_.erase(event);
  }
  return status;
}

// --- memory ------------------------------------------------------------------------------------------------

const std::pair<const std::uint64_t, Memory>* StandIn::find_memory(std::uint64_t address) const {
  const auto next = memory_.upper_bound(address);
  if (next == memory_.begin()) {
    return nullptr;
  }
  const auto& found = *std::prev(next);
  return address - found.first < found.second.bytes ? &found : nullptr;
}

template <class Make>
CudaStatus StandIn::allocate_by(void** address, std::size_t bytes, int ordinal, const Make& make) {
  if (bytes == 0) {
    *address = nullptr;
    return CudaStatus::kSuccess;
  }
  std::uint64_t made = 0;
  CudaStatus status = make(made);
  if (status == CudaStatus::kMemoryAllocation) {
    fake_.rest();  // memory freed in stream order counts until the free has run
    status = make(made);
  }
  if (status == CudaStatus::kSuccess) {
    add(made,
        {.bytes = bytes, .ordinal = ordinal, .host_flags = fake_.is_graph_memory(made) ? kNotShareable : 0});
    *address = pointer_to<void>(made);
  }
  return status;
}

CudaStatus StandIn::allocate(void** address, std::size_t bytes) {
  return allocate_by(address, bytes, ordinal(),
                     [&](std::uint64_t& made) { return fake_.malloc(made, bytes); });
}

CudaStatus StandIn::allocate_managed(void** address, std::size_t bytes, unsigned flags) {
  if (bytes == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) {
    return CudaStatus::kInvalidValue;
  }
  const CudaStatus status = allocate_by(
      address, bytes, ordinal(), [&](std::uint64_t& made) { return fake_.malloc_managed(made, bytes); });
  if (status == CudaStatus::kSuccess) {
    memory_.at(address_of(*address)).type = cudaMemoryTypeManaged;
  }
  return status;
}

CudaStatus StandIn::allocate_async(void** address, std::size_t bytes, cudaStream_t stream) {
  const CudaStream mine = find(stream);
  if (mine == nullptr) {
    return CudaStatus::kInvalidResourceHandle;
  }
  return allocate_by(address, bytes, ordinal_of(stream),
                     [&](std::uint64_t& made) { return fake_.malloc_async(made, bytes, mine); });
}

// A graph's memory has its address forever.
void StandIn::forget(const void* address) {
  if (!fake_.is_graph_memory(address_of(address))) {
    remove(address_of(address));
  }
}

CudaStatus StandIn::free(void* address) {
  if (address == nullptr) {
    return CudaStatus::kSuccess;
  }
  if (const CudaStatus status = fake_.finish_work(); status != CudaStatus::kSuccess) {
    return status;
  }
  const CudaStatus status = fake_.free(address_of(address));
  if (status == CudaStatus::kSuccess) {
    forget(address);
  }
  return status;
}

CudaStatus StandIn::free_async(void* address, cudaStream_t stream) {
  if (address == nullptr) {
    return CudaStatus::kSuccess;
  }
  const CudaStream mine = find(stream);
  if (mine == nullptr) {
    return CudaStatus::kInvalidResourceHandle;
  }
  const CudaStatus status = fake_.free_async(address_of(address), mine);
  if (status == CudaStatus::kSuccess) {
    forget(address);
  }
  return status;
}

CudaStatus StandIn::allocate_host(void** address, std::size_t bytes, unsigned flags) {
  if (bytes == 0) {
    *address = nullptr;
    return CudaStatus::kSuccess;
  }
  std::optional<Mapping> made = Mapping::make(bytes, kPageBytes, Mapping::Kind::kUntouched);
  if (!made) {
    return CudaStatus::kMemoryAllocation;
  }
  const AddressRange range{.begin = made->range().begin, .bytes = bytes};
  if (const CudaStatus status = fake_.host_register(range); status != CudaStatus::kSuccess) {
    return status;
  }
  *address = pointer_to<void>(range.begin);
  add(range.begin, {.bytes = bytes,
                    .type = cudaMemoryTypeHost,
                    .ordinal = ordinal(),
                    .host_flags = flags,
                    .host = std::move(made)});
  return CudaStatus::kSuccess;
}

CudaStatus StandIn::synchronize_used() {
  CudaContextHandle before = nullptr;
  fake_.current_context(before);
  CudaStatus status = CudaStatus::kSuccess;
  for (int each = 0; each < settings_.fake.gpus && status == CudaStatus::kSuccess; ++each) {
    if (fake_.uses(each)) {
      fake_.set_device(each);
      status = fake_.finish_work();
    }
  }
  fake_.set_current_context(before);
  return status;
}

CudaStatus StandIn::free_host(void* address) {
  if (address == nullptr) {
    return CudaStatus::kSuccess;
  }
  if (const CudaStatus status = synchronize_used(); status != CudaStatus::kSuccess) {
    return status;
  }
  const CudaStatus status = fake_.host_unregister(address_of(address));
  if (status == CudaStatus::kSuccess) {
    remove(address_of(address));
  }
  return status;
}

CudaStatus StandIn::copy(void* destination, const void* source, std::size_t bytes, cudaStream_t stream) {
  const CudaStream mine = find(stream);
  if (mine == nullptr) {
    return CudaStatus::kInvalidResourceHandle;
  }
  const Access write{.range = {.begin = address_of(destination), .bytes = bytes}};
  const Access read{.range = {.begin = address_of(source), .bytes = bytes}};
  const bool from_pageable = find_memory(read.range.begin) == nullptr;
  const bool to_pageable = find_memory(write.range.begin) == nullptr;
  // Ordinary host memory is read and written before the call returns.
  std::shared_ptr<std::vector<char>> staged;
  if (from_pageable) {
    const char* const begin = static_cast<const char*>(source);
    staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
  }
  const CudaStatus status =
      FakeCuda::launch(mine,
                       [destination, source, bytes, staged] {
                         std::memmove(destination, staged ? staged->data() : source, bytes);
                       },
                       {.name = "a copy",
                        .reads = {&read, from_pageable ? std::size_t{0} : std::size_t{1}},
                        .writes = {&write, to_pageable ? std::size_t{0} : std::size_t{1}},
                        .is_copy = true});
  return status == CudaStatus::kSuccess && to_pageable ? fake_.stream_synchronize(mine) : status;
}

CudaStatus StandIn::set(void* destination, int value, std::size_t bytes, cudaStream_t stream) {
  const CudaStream mine = find(stream);
  if (mine == nullptr) {
    return CudaStatus::kInvalidResourceHandle;
  }
  const Access write{.range = {.begin = address_of(destination), .bytes = bytes}};
  return FakeCuda::launch(mine, [=] { std::memset(destination, value, bytes); },
                          {.name = "a memset", .reads = {}, .writes = {&write, 1}});
}

CudaStatus StandIn::reset() {
  const int mine = ordinal();
  fake_.drop_captures();
  if (const CudaStatus status = fake_.device_synchronize(); status != CudaStatus::kSuccess) {
    return status;
  }
  for (const auto& stream : streams_) {
    if (stream->fake != nullptr && stream->ordinal == mine) {
      fake_.stream_destroy(std::exchange(stream->fake, nullptr));
    }
  }
  std::ranges::for_each(std::exchange(events_, {}), [&](CudaEvent event) { fake_.event_destroy(event); });
  for (auto it = memory_.begin(); it != memory_.end();) {
    const bool gone = it->second.ordinal == mine && it->second.type != cudaMemoryTypeHost &&
                      it->second.host_flags == 0 && fake_.free(it->first) == CudaStatus::kSuccess;
    it = gone ? memory_.erase(it) : std::next(it);
  }
  return fake_.device_reset();
}

// --- the end -----------------------------------------------------------------------------------------------

void StandIn::report_misuse(const std::string& text) {
  report_ << "misuse " << text << std::endl;
}

void StandIn::report_what_is_wrong() {
  if (!report_.is_open() || fake_.wrong() == misuses_reported_ + findings_reported_) {
    return;
  }
  const std::vector<std::string> misuses = fake_.misuses();
  for (; misuses_reported_ < misuses.size(); ++misuses_reported_) {
    report_misuse(misuses[misuses_reported_]);
  }
  const std::vector<SimFinding> findings = fake_.findings();
  for (; findings_reported_ < findings.size(); ++findings_reported_) {
    report_ << "finding " << findings[findings_reported_].text << std::endl;
  }
}

void StandIn::write_report() {
  if (!report_.is_open() || getpid() != process_) {
    return;
  }
  const std::lock_guard lock(mutex_);
  fake_.rest();
  report_what_is_wrong();
  for (const auto& [name, count] : calls_) {
    report_ << "call " << name << ' ' << count << '\n';
  }
  for (const std::string& name : failed_) {
    report_ << "failed " << name << '\n';
  }
  for (const std::string& leak : fake_.leaks()) {
    report_ << "leak " << leak << '\n';
  }
  report_.close();
}

}  // namespace vdnn::stand_in
