#pragma once
// The state of a stream pool as JSON: for our tools, and for PyTorch's memory visualiser. Both forms contain
// every committed byte once. Stacks name functions and binaries.

#include <cstdint>
#include <string>

#include "vdnn/stream_pool.h"

namespace vdnn {

// JSON that follows docs/pool_snapshot.schema.json: figures, pieces, and the history that the pool keeps.
std::string pool_snapshot_json(const StreamPool& pool);

// JSON with the keys of torch.cuda.memory._snapshot(), whose pickle https://pytorch.org/memory_viz reads:
//
//   pickle.dump(json.load(open("snapshot.json")), open("snapshot.pickle", "wb"))
//
// A segment is adjacent committed memory of one kind. Blocks in the cache of a stream are "inactive", as free
// ones are. `device` is the number that the visualiser shows. Streams are ids of the pool's backend, since
// handles may have been reused.
std::string torch_snapshot_json(const StreamPool& pool, std::uint32_t device);

}  // namespace vdnn
