#include "services/indexer/service/memory_index.hpp"

#include <algorithm>
#include <chrono>

#include "config/logging.hpp"

namespace cenote::indexer {

namespace {

forest_options forest_options_of(const config::index_section& index) {
  constexpr std::size_t least_members = 256;
  constexpr std::size_t member_bytes = 1024;  // of an index's memory for each rank of a pod that there may be
  return {.memory = index.memory,
          .members = std::clamp<std::size_t>(index.memory / member_bytes, least_members, holder_table::most_holders)};
}

}  // namespace

memory_index::memory_index(const config::index_section& settings, const token_processor& keys)
    : keys_(keys), index_(forest_options_of(settings)), writer_(index_, keys_) {}

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
