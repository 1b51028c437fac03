#pragma once
// What a stream pool consists of at a moment, as JSON: for tools of ours, and for the memory visualiser of
// PyTorch. Both are complete: every byte that is committed is in them once. Stacks are in terms of functions
// and binaries.

#include <cstdint>
#include <string>

#include "vdnn/stream_pool.h"

namespace vdnn {

// After docs/pool_snapshot.schema.json: figures, pieces, and what history the pool keeps.
std::string pool_snapshot_json(const StreamPool& pool);

// With the keys of torch.cuda.memory._snapshot(), whose pickle https://pytorch.org/memory_viz reads:
//
//   pickle.dump(json.load(open("snapshot.json")), open("snapshot.pickle", "wb"))
//
// A segment is what is committed without a gap, of one kind; in the cache of a stream is "inactive", as free
// is. `device` is the number that it shows. Streams are the pool's ids, since handles may have been reused.
std::string torch_snapshot_json(const StreamPool& pool, std::uint32_t device);

}  // namespace vdnn
