#include "vdnn/pool_snapshot.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vdnn {

namespace {

constexpr std::uint64_t kSchema = 1;

// Writes JSON member by member. Nlohmann's values allocate when they are destroyed, and end the process if
// there is no memory. A program must survive a snapshot that it writes because memory is short.
class JsonText {
 public:
  void open(char bracket) {
    separate();
    text_ += bracket;
    first_ = true;
  }
  void close(char bracket) {
    text_ += bracket;
    first_ = false;
  }
  JsonText& key(std::string_view name) {
    value(name);
    text_ += ':';
    first_ = true;
    return *this;
  }
  void value(std::string_view text) {
    separate();
    text_ += '"';
    for (const char c : text) {
      put(c);
    }
    text_ += '"';
  }
  void value(std::uint64_t number) {
    separate();
    text_ += std::to_string(number);
  }
  void value(bool truth) {
    separate();
    text_ += truth ? "true" : "false";
  }
  // Appends `json` unchanged.
  void plain(std::string_view json) {
    separate();
    text_ += json;
  }
  std::string take() { return std::move(text_); }

 private:
  void separate() {
    if (!first_) {
      text_ += ',';
    }
    first_ = false;
  }
  void put(char c) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (const auto code = static_cast<unsigned char>(c); code < ' ') {
      text_.append("\\u00").append(1, kDigits[code / 16]).append(1, kDigits[code % 16]);
      return;
    }
    if (c == '"' || c == '\\') {
      text_ += '\\';
    }
    text_ += c;
  }

  std::string text_;
  bool first_ = true;
};

std::string_view name_of(PoolPiece::State state) {
  switch (state) {
    case PoolPiece::State::kInUse:
      return "in use";
    case PoolPiece::State::kCached:
      return "cached";
    case PoolPiece::State::kFree:
      return "free";
    case PoolPiece::State::kVacant:
      return "vacant";
  }
  return {};
}

struct Named {
  std::string_view name;
  std::uint64_t value = 0;
};

template <std::size_t n>
void write_all(JsonText& json, const std::array<Named, n>& members) {
  for (const Named& member : members) {
    json.key(member.name).value(member.value);
  }
}

void write(JsonText& json, const PoolFigure& figure) {
  json.open('{');
  write_all(json, std::array<Named, 4>{{{"current", figure.current},
                                        {"peak", figure.peak},
                                        {"added", figure.added},
                                        {"removed", figure.removed}}});
  json.close('}');
}

void write(JsonText& json, const PoolFigures& figures) {
  json.open('{');
  write(json.key("blocks"), figures.blocks);
  write(json.key("requested_bytes"), figures.requested);
  write(json.key("allocated_bytes"), figures.allocated);
  write(json.key("active_bytes"), figures.active);
  write(json.key("reserved_bytes"), figures.reserved);
  json.close('}');
}

void write(JsonText& json, const StreamPoolStatistics& statistics) {
  json.open('{');
  write(json.key("all"), statistics.all);
  for (const BlockKind kind : kAllBlockKinds) {
    write(json.key(to_string(kind)), statistics.of(kind));
  }
  write_all(json, std::array<Named, 10>{{{"reused_from_cache", statistics.reused_from_cache},
                                         {"reused_at_once", statistics.reused_at_once},
                                         {"reused_after_wait", statistics.reused_after_wait},
                                         {"growths", statistics.growths},
                                         {"events_recorded", statistics.events_recorded},
                                         {"stream_waits", statistics.stream_waits},
                                         {"host_waits", statistics.host_waits},
                                         {"device_waits", statistics.device_waits},
                                         {"retries", statistics.retries},
                                         {"failures", statistics.failures}}});
  json.close('}');
}

void write(JsonText& json, const PoolPiece& piece) {
  json.open('{');
  json.key("state").value(name_of(piece.state));
  json.key("kind").value(to_string(piece.kind));
  write_all(json, std::array<Named, 2>{{{"begin", piece.range.begin}, {"bytes", piece.range.bytes}}});
  if (piece.state == PoolPiece::State::kInUse) {
    json.key("requested_bytes").value(piece.requested_bytes);
  }
  if (piece.state == PoolPiece::State::kInUse || piece.state == PoolPiece::State::kCached) {
    json.key("stream").value(piece.stream_id);
  }
  json.close('}');
}

// Adjacent committed pieces of one kind.
struct Segment {
  BlockKind kind = BlockKind::kSmall;
  std::vector<PoolPiece> pieces;
};

std::vector<Segment> segments_of(const std::vector<PoolPiece>& pieces) {
  std::vector<Segment> segments;
  const PoolPiece* previous = nullptr;
  for (const PoolPiece& piece : pieces) {
    if (piece.state == PoolPiece::State::kVacant) {
      continue;
    }
    if (previous == nullptr || previous->kind != piece.kind || previous->range.end() != piece.range.begin) {
      segments.push_back({.kind = piece.kind, .pieces = {}});
    }
    segments.back().pieces.push_back(piece);
    previous = &piece;
  }
  return segments;
}

void write_torch_block(JsonText& json, const PoolPiece& piece) {
  json.open('{');
  write_all(json, std::array<Named, 3>{{{"address", piece.range.begin},
                                        {"size", piece.range.bytes},
                                        {"requested_size", piece.requested_bytes}}});
  json.key("state").value(
      std::string_view(piece.state == PoolPiece::State::kInUse ? "active_allocated" : "inactive"));
  json.key("frames").plain("[]");
  json.close('}');
}

void write_torch_segment(JsonText& json, const Segment& segment, std::uint64_t device) {
  std::uint64_t total = 0;
  std::uint64_t in_use = 0;
  std::uint64_t requested = 0;
  for (const PoolPiece& piece : segment.pieces) {
    total += piece.range.bytes;
    in_use += piece.state == PoolPiece::State::kInUse ? piece.range.bytes : 0;
    requested += piece.requested_bytes;
  }
  json.open('{');
  write_all(json, std::array<Named, 7>{{{"device", device},
                                        {"address", segment.pieces.front().range.begin},
                                        {"total_size", total},
                                        {"allocated_size", in_use},
                                        {"active_size", in_use},
                                        {"requested_size", requested},
                                        {"stream", segment.pieces.front().stream_id}}});
  json.key("segment_type").value(std::string_view(segment.kind == BlockKind::kSmall ? "small" : "large"));
  json.key("segment_pool_id").plain(segment.kind == BlockKind::kPersistent ? "[0,1]" : "[0,0]");
  json.key("is_expandable").value(true);
  json.key("frames").plain("[]");
  json.key("blocks").open('[');
  for (const PoolPiece& piece : segment.pieces) {
    write_torch_block(json, piece);
  }
  json.close(']');
  json.close('}');
}

// --- history

std::string name_of_frame(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? name.get() : mangled;
}

// Writes a frame with the keys of PyTorch's frames. The line number is not known.
void write_frame(JsonText& json, const void* address) {
  Dl_info info{};
  const bool known = dladdr(address, &info) != 0;
  json.open('{');
  json.key("name").value(known && info.dli_sname != nullptr
                             ? name_of_frame(info.dli_sname)
                             : std::to_string(reinterpret_cast<std::uintptr_t>(address)));
  json.key("filename").value(std::string_view(known && info.dli_fname != nullptr ? info.dli_fname : ""));
  json.key("line").value(std::uint64_t{0});
  json.close('}');
}

void write_frames(JsonText& json, const PoolEvent& event) {
  json.key("frames").open('[');
  for (const void* const frame : event.frames) {
    write_frame(json, frame);
  }
  json.close(']');
}

std::string_view name_of(PoolEvent::Kind kind) {
  switch (kind) {
    case PoolEvent::Kind::kAllocated:
      return "allocated";
    case PoolEvent::Kind::kFreed:
      return "freed";
    case PoolEvent::Kind::kRefused:
      break;
  }
  return "refused";
}

void write(JsonText& json, const PoolEvent& event) {
  json.open('{');
  json.key("event").value(name_of(event.kind));
  write_all(json, std::array<Named, 4>{{{"begin", event.range.begin},
                                        {"bytes", event.range.bytes},
                                        {"stream", event.stream_id},
                                        {"microseconds", event.microseconds}}});
  write_frames(json, event);
  json.close('}');
}

// PyTorch reports a free twice: when it is requested, and when the block's last users are done. In the pool,
// a free is complete immediately.
void write_torch_event(JsonText& json, const PoolEvent& event, std::string_view action) {
  json.open('{');
  json.key("action").value(action);
  write_all(json, std::array<Named, 4>{{{"addr", event.range.begin},
                                        {"size", event.range.bytes},
                                        {"stream", event.stream_id},
                                        {"time_us", event.microseconds}}});
  write_frames(json, event);
  json.close('}');
}

void write_torch_events(JsonText& json, const PoolEvent& event) {
  switch (event.kind) {
    case PoolEvent::Kind::kAllocated:
      write_torch_event(json, event, "alloc");
      return;
    case PoolEvent::Kind::kFreed:
      write_torch_event(json, event, "free_requested");
      write_torch_event(json, event, "free_completed");
      return;
    case PoolEvent::Kind::kRefused:
      write_torch_event(json, event, "oom");
      return;
  }
}

}  // namespace

std::string pool_snapshot_json(const StreamPool& pool) {
  const PoolBackendProperties& backend = pool.backend().properties();
  JsonText json;
  json.open('{');
  json.key("schema").value(kSchema);
  json.key("name").value(std::string_view(pool.name()));
  json.key("device").value(std::string_view(backend.name));
  json.key("granule_bytes").value(backend.granule_bytes);
  json.key("alignment_bytes").value(backend.alignment_bytes);
  write(json.key("statistics"), pool.statistics());
  json.key("pieces").open('[');
  for (const PoolPiece& piece : pool.snapshot()) {
    write(json, piece);
  }
  json.close(']');
  json.key("history").open('[');
  for (const PoolEvent& event : pool.history()) {
    write(json, event);
  }
  json.close(']');
  json.close('}');
  return json.take();
}

std::string torch_snapshot_json(const StreamPool& pool, std::uint32_t device) {
  JsonText json;
  json.open('{');
  json.key("segments").open('[');
  for (const Segment& segment : segments_of(pool.snapshot())) {
    write_torch_segment(json, segment, device);
  }
  json.close(']');
  // One list per device.
  json.key("device_traces").open('[');
  for (std::uint32_t i = 0; i < device; ++i) {
    json.plain("[]");
  }
  json.open('[');
  for (const PoolEvent& event : pool.history()) {
    write_torch_events(json, event);
  }
  json.close(']');
  json.close(']');
  json.key("allocator_settings").plain("{}");
  json.close('}');
  return json.take();
}

}  // namespace vdnn
