// An indexer without sockets: publishers' events as MessagePack, through the decoder and the placer into an index, and
// scores out of it.
#pragma once

#include <array>
#include <boost/crc.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/checksum.hpp"
#include "services/indexer/events/event_adapter.hpp"
#include "services/indexer/placement/placer.hpp"
#include "services/indexer/scoring/scorer.hpp"
#include "tests/support/indexer_values.hpp"

namespace cenote::indexer {

/// Tokens "A:0:64+B:0:32": token i of sequence S is crc32("S:i") mod 120,000.
inline std::vector<std::uint32_t> tokens_of(const std::string& description) {
  std::vector<std::uint32_t> tokens;
  std::size_t begin = 0;
  while (begin < description.size()) {
    const std::size_t end = std::min(description.find('+', begin), description.size());
    const std::string part = description.substr(begin, end - begin);
    const std::size_t first = part.find(':');
    const std::size_t second = part.find(':', first + 1);
    const std::string sequence = part.substr(0, first);
    for (std::size_t i = std::stoul(part.substr(first + 1, second)); i < std::stoul(part.substr(second + 1)); ++i) {
      boost::crc_32_type sum;
      const std::string text = sequence + ":" + std::to_string(i);
      sum.process_bytes(text.data(), text.size());
      tokens.push_back(sum.checksum() % 120'000);
    }
    begin = end + 1;
  }
  return tokens;
}

/// An engine as the cases describe one: the names that it has for blocks, and the form of its events.
struct case_engine {
  std::string pod;
  std::string model;
  std::string node;
  std::size_t block_tokens = 16;
  bool has_arrays = false;
  bool has_byte_hashes = false;
  std::uint64_t seed = 7;  ///< of its hashes

  explicit case_engine(const test::json& facts = test::json::object())
      : pod(facts.value("pod", "10.0.0.1:8000")),
        model(facts.value("model", "m")),
        node(facts.value("node", "")),
        block_tokens(facts.value("block", std::size_t{16})),
        has_arrays(facts.value("encoding", "map") == "array"),
        has_byte_hashes(facts.value("hashes", "int") == "bytes"),
        seed(facts.value("seed", std::uint64_t{7})) {}

  /// Hashes of whole blocks: over tokens and extra keys, not the adapter.
  [[nodiscard]] std::vector<std::uint64_t> hashes_of(const std::vector<std::uint32_t>& tokens,
                                                     const test::json& extra) const {
    std::vector<std::uint64_t> hashes;
    std::uint64_t parent = seed;
    for (std::size_t block = 0; (block + 1) * block_tokens <= tokens.size(); ++block) {
      const std::string name = std::to_string(block);
      const std::string list = extra.contains(name) ? extra[name].dump() : "";
      parent = checksum_of(list.data(), list.size(), parent);
      parent = checksum_of(&tokens[block * block_tokens], block_tokens * sizeof(std::uint32_t), parent);
      hashes.push_back(parent);
    }
    return hashes;
  }

  [[nodiscard]] test::json hash_value(std::uint64_t hash) const {
    if (!has_byte_hashes) return hash;
    std::vector<std::uint8_t> bytes(32, 0xab);
    for (std::size_t i = 0; i < 8; ++i) bytes[24 + i] = static_cast<std::uint8_t>(hash >> (56 - 8 * i));
    return test::json::binary(std::move(bytes));
  }

  /// The event as it stands in a payload.
  [[nodiscard]] test::json event_of(const test::json& step) const {
    const std::string type = step["type"];
    if (!step.contains("of")) return has_arrays ? test::json::array({type}) : step;
    const auto tokens = tokens_of(step["of"]);
    const test::json extra = step.value("extra", test::json::object());
    const auto hashes = hashes_of(tokens, extra);
    std::size_t begin = 0;
    std::size_t end = hashes.size();
    if (step.contains("blocks")) {
      begin = step["blocks"][0];
      end = step["blocks"][1];
    }
    test::json names = test::json::array();
    test::json lists = test::json::array();
    for (std::size_t i = begin; i < end; ++i) {
      names.push_back(hash_value(hashes[i]));
      const std::string number = std::to_string(i);
      lists.push_back(extra.contains(number) ? extra[number] : test::json());
    }
    const test::json medium = step.contains("medium") ? step["medium"] : test::json("GPU");
    const test::json group = step.contains("group_idx") ? step["group_idx"] : test::json();
    if (type == "BlockRemoved") {
      if (has_arrays) return {type, names, medium, group};
      return {{"type", type}, {"block_hashes", names}, {"medium", medium}, {"group_idx", group}};
    }
    const bool is_tokenless = step.value("tokenless", false);
    const test::json parent = begin == 0 || is_tokenless ? test::json() : hash_value(hashes[begin - 1]);
    test::json run = test::json::array();
    for (std::size_t i = begin * block_tokens; i < end * block_tokens && !is_tokenless; ++i) run.push_back(tokens[i]);
    const auto optional = [&](const char* name) { return step.contains(name) ? step[name] : test::json(); };
    if (has_arrays) {
      return {type,
              names,
              parent,
              run,
              block_tokens,
              nullptr,
              medium,
              optional("lora_name"),
              extra.empty() ? test::json() : lists,
              group,
              optional("kv_cache_spec_kind"),
              optional("kv_cache_spec_sliding_window")};
    }
    test::json event{{"type", type},
                     {"block_hashes", names},
                     {"parent_block_hash", parent},
                     {"token_ids", run},
                     {"block_size", block_tokens},
                     {"medium", medium},
                     {"group_idx", group},
                     {"lora_name", optional("lora_name")}};
    if (!extra.empty()) event["extra_keys"] = lists;
    for (const char* const name : {"kv_cache_spec_kind", "kv_cache_spec_sliding_window"}) {
      if (step.contains(name)) event[name] = step[name];
    }
    return event;
  }
};

/// Events as event_of() takes them: what is stored of a prompt, or removed.
inline test::json stored(const std::string& prompt, const test::json& fields = test::json::object()) {
  test::json event{{"type", "BlockStored"}, {"of", prompt}};
  event.update(fields);
  return event;
}
inline test::json removed(const std::string& prompt, const test::json& fields = test::json::object()) {
  test::json event{{"type", "BlockRemoved"}, {"of", prompt}};
  event.update(fields);
  return event;
}

using pod_scores = std::map<std::string, double>;

struct indexer_world {
  /// `block_tokens`: of all blocks of the index; 0: each engine's own.
  explicit indexer_world(std::size_t memory = std::size_t{32} << 20, std::uint32_t block_tokens = 0)
      : processor(key_chain::xxh3, "test"),
        index({.memory = memory, .members = 4096, .repeats = 100'000, .seed = 11}),
        blocks(index, processor, block_tokens),
        questions(std::move(*scorer::open(index, processor))) {
    blocks.set_expectation(std::chrono::seconds(10));
  }

  /// The number of a publisher that is open from now on.
  publisher_id open(const case_engine& engine, clear_scope cleared = clear_scope::gpu) {
    publisher_identity identity;
    identity.name = "publisher" + std::to_string(next_);
    identity.pod = engine.pod;
    identity.model = engine.model;
    identity.node = engine.node;
    identity.clear = cleared;
    BOOST_REQUIRE(blocks.open(next_, identity));
    blocks.advance(now);
    return next_++;
  }

  placement_effect publish(publisher_id publisher, const case_engine& engine, const std::vector<test::json>& events,
                           std::uint32_t rank = 0) {
    test::json list = test::json::array();
    for (const test::json& event : events) list.push_back(engine.event_of(event));
    const auto bytes = test::json::to_msgpack(test::json{1.5, list, rank});
    event_adapter adapter(event_engine::automatic);
    const std::string topic = "kv@" + engine.pod + "@" + engine.model;
    BOOST_REQUIRE(adapter.parse(topic, std::as_bytes(std::span(bytes)), batch));
    const placement_effect effect = blocks.apply(publisher, batch);
    blocks.advance(now);
    return effect;
  }

  score_answer ask(const test::json& question) {
    tokens = tokens_of(question["of"]);
    extra = {};
    if (question.contains("extra")) {
      test::json lists = test::json::array();
      for (std::size_t i = 0; i < tokens.size() / 16; ++i) {
        const std::string number = std::to_string(i);
        lists.push_back(question["extra"].contains(number) ? question["extra"][number] : test::json());
      }
      extra = table_of(lists);
    }
    pods.clear();
    if (question.contains("pod_identifiers")) {
      for (const test::json& pod : question["pod_identifiers"]) pods.push_back(pod.get_ref<const std::string&>());
    }
    model = question.value("model_name", "m");
    lora_name = question.value("lora_name", "");
    return questions.score(
        {.model = model, .tokens = tokens, .pods = pods, .lora_name = lora_name, .extra_keys = extra.view()});
  }
  pod_scores scores(const test::json& question) {
    pod_scores all;
    for (const pod_score& each : ask(question).scores) all[std::string(each.pod)] = each.score;
    return all;
  }

  token_processor processor;
  forest index;
  placer blocks;
  scorer questions;
  feed_time now{std::chrono::seconds(1000)};
  event_batch batch;
  std::vector<std::uint32_t> tokens;
  std::vector<std::string_view> pods;
  extra_key_table extra;
  std::string model, lora_name;

 private:
  publisher_id next_ = 1;
};

inline void check_scores(const pod_scores& present, const test::json& expected, const std::string& place) {
  BOOST_TEST(present.size() == expected.size(), place);
  for (const auto& [pod, score] : expected.items()) {
    const auto found = present.find(pod);
    BOOST_TEST((found != present.end()), place << ": " << pod << " has no score");
    if (found == present.end()) continue;
    BOOST_TEST(std::abs(found->second - score.get<double>()) < 1e-9,
               place << ": " << pod << " has " << found->second << ", not " << score);
  }
}

}  // namespace cenote::indexer
