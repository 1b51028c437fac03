#pragma once
// The state of a stream pool as JSON, in one form for our tools and in another for PyTorch's memory
// visualiser. Both forms contain every committed byte once. In call stacks, each frame has the names of the
// function and of the binary.

#include <cstdint>
#include <string>

#include "vdnn/stream_pool.h"

namespace vdnn {

// JSON that follows docs/pool_snapshot.schema.json: figures, pieces, and the history that the pool keeps.
std::string pool_snapshot_json(const StreamPool& pool);

// JSON with the keys of torch.cuda.memory._snapshot(). https://pytorch.org/memory_viz opens the file
// snapshot.pickle that this line of Python writes:
//
//   pickle.dump(json.load(open("snapshot.json")), open("snapshot.pickle", "wb"))
//
// A segment is a range of adjacent committed memory that has one BlockKind. Free blocks and blocks in the
// cache of a stream are "inactive". `device` is the GPU's number for the visualiser. A stream is identified
// by its id (PoolBackend::stream_id()), since its handle may have been reused.
std::string torch_snapshot_json(const StreamPool& pool, std::uint32_t device);

}  // namespace vdnn
