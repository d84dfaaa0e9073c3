#include "services/indexer/service/memory_index.hpp"

#include <chrono>

#include "config/logging.hpp"

namespace cenote::indexer {

memory_index::memory_index(const config::index_section& settings, const token_processor& keys)
    : keys_(keys), index_(forest_options_for(settings.memory)), writer_(index_, keys_, settings.block_tokens) {}

// The calling thread is the writer before there is one, else this is a task of it.
void memory_index::set_scoring(const config::scoring_section& settings) {
  writer_.set_expectation(std::chrono::duration_cast<std::chrono::milliseconds>(settings.speculative_ttl));
  const auto set = [this, named = settings.weights](forest& index, placer&) {
    medium_weights weights;
    weights.of_medium = {};
    for (const auto& [name, weight] : named) {
      const auto medium = index.holders().medium_of(name);
      if (medium) {
        weights.of_medium[*medium] = weight;
      } else {
        log_warn(logger("indexer"), "a weight names one medium more than there may be", {{"medium", name}});
      }
    }
    weights_.set(weights);
  };
  if (auto posted = writer_.post(set, 0); !posted) {
    log_warn(logger("indexer"), "weights stay as they are", {{"reason", posted.error().message()}});
  }
}

}  // namespace cenote::indexer
