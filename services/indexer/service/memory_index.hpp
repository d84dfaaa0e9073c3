// The index in memory, as the service has it.
#pragma once

#include "config/node_config.hpp"
#include "services/indexer/forest/forest.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/service/dump_places.hpp"
#include "services/indexer/service/indexer_writer.hpp"
#include "services/indexer/service/service_calls.hpp"
#include "services/indexer/service/shared_weights.hpp"

namespace cenote::indexer {

/// `keys` outlives it. Throws std::bad_alloc.
class memory_index {
 public:
  memory_index(const config::index_section& settings, const token_processor& keys);

  [[nodiscard]] indexer_writer& writer() noexcept { return writer_; }
  /// Weights of media and the time of expectations; media get their numbers from the index's writer.
  void set_scoring(const config::scoring_section& settings);
  [[nodiscard]] memory_parts parts() noexcept {
    return {.index = index_, .processor = keys_, .writer = writer_, .weights = weights_, .dumps = dumps_};
  }

 private:
  const token_processor& keys_;
  forest index_;
  indexer_writer writer_;
  shared_weights weights_;
  dump_places dumps_{dump_places::max()};
};

}  // namespace cenote::indexer
