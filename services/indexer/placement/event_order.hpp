// The order in which the events of a batch are applied.
#pragma once

#include <cstddef>

#include "services/indexer/events/event_batch.hpp"

namespace cenote::indexer {

/// Calls `visit(event)` for each event of a batch. vLLM publishes the last blocks of a window before the whole prefix
/// that has their names: an event that has not all blocks of its tokens waits for the next one that is stored, but for
/// no removal.
template <class Visit>
void visit_in_order(const event_batch& batch, Visit&& visit) {
  std::size_t waiting = 0;
  const auto visit_sparse = [&](std::size_t end) {
    for (; waiting < end; ++waiting) {
      if (batch.events[waiting].is_sparse()) visit(batch.events[waiting]);
    }
  };
  for (std::size_t i = 0; i < batch.events.size(); ++i) {
    const engine_event& event = batch.events[i];
    if (event.is_sparse()) continue;
    const bool is_stored = event.kind == event_kind::stored;
    if (!is_stored) visit_sparse(i);
    visit(event);
    if (is_stored) visit_sparse(i);
  }
  visit_sparse(batch.events.size());
}

}  // namespace cenote::indexer
