// A local_index and batches for it, as an engine that never fails would publish them.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "services/indexer/library/local_index.hpp"
#include "tests/support/indexer_world.hpp"

namespace cenote::indexer {

inline const std::string prompt = "A:0:256";  // 16 blocks

/// An engine of model "m".
inline case_engine engine_of(const std::string& pod) {
  case_engine engine;
  engine.pod = pod;
  return engine;
}

using payload_bytes = std::vector<std::uint8_t>;

inline std::span<const std::byte> view_of(const payload_bytes& payload) {
  return std::as_bytes(std::span(payload));
}

/// A batch of one event: blocks [begin, end) of the tokens.
inline payload_bytes stored(const case_engine& engine, const std::string& tokens, std::size_t begin, std::size_t end,
                            const std::string& medium = "GPU") {
  const test::json step{{"type", "BlockStored"}, {"of", tokens}, {"blocks", {begin, end}}, {"medium", medium}};
  return test::json::to_msgpack(test::json{1.5, {engine.event_of(step)}, 0});
}

inline payload_bytes removed(const case_engine& engine, const std::string& tokens, std::size_t begin, std::size_t end) {
  const test::json step{{"type", "BlockRemoved"}, {"of", tokens}, {"blocks", {begin, end}}};
  return test::json::to_msgpack(test::json{1.5, {engine.event_of(step)}, 0});
}

inline local_index_options small_index() {
  local_index_options options;
  options.memory = std::size_t{32} << 20;
  options.seed = "test";
  return options;
}

struct fed_index {
  explicit fed_index(const local_index_options& options = small_index())
      : index(local_index::make(options).value()), questions(index.open_scorer().value()) {}

  feed_outcome feed(const case_engine& engine, std::uint64_t seq, const payload_bytes& payload) {
    return index.feed("kv@" + engine.pod + "@" + engine.model, seq, view_of(payload), now).value();
  }
  /// The blocks that each pod has of these tokens.
  std::map<std::string, std::uint32_t> blocks(const std::string& description, const std::string& model = "m") {
    const auto tokens = tokens_of(description);
    std::map<std::string, std::uint32_t> found;
    for (const pod_score& each : questions.score({.model = model, .tokens = tokens}).scores) {
      found.emplace(each.pod, each.blocks);
    }
    return found;
  }

  local_index index;
  scorer questions;
  feed_time now{std::chrono::seconds(1000)};
};

}  // namespace cenote::indexer
