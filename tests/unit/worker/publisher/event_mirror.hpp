// A subscriber's list of what a node holds, by the indexer's own decoder.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "services/indexer/events/event_adapter.hpp"

namespace cenote::publishing::testing {

/// Of tests whose keys begin with a small number, little endian, and are 16 bytes long.
class event_mirror {
 public:
  using medium = indexer::block_medium;

  void take(std::string_view topic, std::string_view payload) {
    if (!adapter_.parse(topic, std::as_bytes(std::span(payload)), batch_)) {
      wrong = "a payload is no batch";
      return;
    }
    if (batch_.bad_events() + batch_.unknown_events() != 0) wrong = "an event makes no sense";
    for (const indexer::engine_event& each : batch_.events) take(std::string(topic), each);
  }
  [[nodiscard]] std::size_t count(std::string_view topic, medium place) const {
    const auto found = blocks.find({std::string(topic), place});
    return found == blocks.end() ? 0 : found->second.size();
  }

  std::map<std::pair<std::string, medium>, std::set<std::uint64_t>> blocks;  ///< the first eight bytes of keys
  std::uint64_t clears = 0;
  std::string wrong;

 private:
  void take(const std::string& topic, const indexer::engine_event& event) {
    auto& here = blocks[{topic, event.medium}];
    if (!event.is_medium_named) wrong = "an event names no medium";
    if (event.kind == indexer::event_kind::cleared) {
      ++clears;
      here.clear();
    }
    for (const std::uint64_t hash : batch_.leading_hashes_of(event)) {
      const bool is_right =
          event.kind == indexer::event_kind::stored ? here.insert(hash).second : here.erase(hash) == 1;
      if (!is_right) wrong = "a block comes twice, or goes without having been there";
    }
  }

  indexer::event_adapter adapter_{indexer::event_engine::automatic};
  indexer::event_batch batch_;
};

}  // namespace cenote::publishing::testing
