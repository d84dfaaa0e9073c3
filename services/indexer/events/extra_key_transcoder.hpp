// From MessagePack to the canonical form of extra keys.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "services/indexer/events/event_batch.hpp"
#include "services/indexer/events/msgpack_reader.hpp"

namespace cenote::indexer {

/// The reason for which an event is passed over; nothing: it is taken.
using event_verdict = std::optional<event_fault>;

/// Reads a block's list and appends it to `bytes`; nothing is appended for nil and for an empty list. A value that has
/// no canonical form (an extension, a map of more than map_order::most_entries) is a fault, as are too many levels.
[[nodiscard]] event_verdict transcode_list(msgpack_reader& reader, std::vector<std::byte>& bytes);

}  // namespace cenote::indexer
