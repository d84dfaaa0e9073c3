// Captured and written payloads against what they mean: tests/data/indexer, and ../shared/cases where it is there.
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <iterator>

#include "services/indexer/events/event_adapter.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/indexer_values.hpp"

namespace cenote::indexer {

namespace {

using test::json;
using payload = std::vector<std::byte>;

constexpr std::string_view tags[] = {"BlockStored", "BlockRemoved", "AllBlocksCleared"};

std::vector<std::uint64_t> numbers_of(const json& list) {
  std::vector<std::uint64_t> numbers;
  for (const json& each : list) numbers.push_back(test::number_of(each));
  return numbers;
}

template <class Range>
std::vector<typename Range::value_type> copied(const Range& range) {
  return {range.begin(), range.end()};
}

/// The canonical list of each of an event's blocks, empty ones for null.
std::vector<payload> lists_of(const extra_key_view& view) {
  std::vector<payload> lists;
  for (std::size_t block = 0; block < view.blocks.size(); ++block) {
    const auto list = view.list(block);
    lists.emplace_back(list.begin(), list.end());
  }
  return lists;
}

/// A file's lists of an event's blocks; none where all are null.
std::vector<payload> expected_lists(const json& event) {
  if (!event.contains("extra_keys") || event["extra_keys"].is_null()) return {};
  const json& lists = event["extra_keys"];
  if (std::ranges::all_of(lists, [](const json& list) { return list.is_null(); })) return {};
  const extra_key_table table = table_of(lists);
  return lists_of(table.view());
}

void check_stored(const event_batch& batch, const engine_event& event, const json& expected) {
  BOOST_TEST(event.parent.has_value() == !expected["parent"].is_null());
  if (event.parent) BOOST_TEST(*event.parent == test::number_of(expected["parent"]));
  BOOST_TEST(batch.tokens_of(event).size() == expected["tokens"].get<std::size_t>());
  BOOST_TEST(event.block_tokens ==
             (expected["block_size"].is_null() ? 0 : expected["block_size"].get<std::uint32_t>()));
  BOOST_TEST(batch.lora_name_of(event) ==
             (expected["lora_name"].is_null() ? "" : expected["lora_name"].get<std::string>()));
  BOOST_TEST((lists_of(batch.extra_keys_of(event)) == expected_lists(expected)));
  BOOST_TEST(name_of(event.attention) == expected.value("kv_cache_spec_kind", "unstated"));
  BOOST_TEST(event.window_tokens == expected.value("kv_cache_spec_sliding_window", 0U));
}

void check_event(const event_batch& batch, const engine_event& event, const json& expected) {
  const std::string_view tag = tags[static_cast<std::size_t>(event.kind)];
  BOOST_TEST(tag == expected["type"].get<std::string>());
  if (event.kind == event_kind::cleared) return;
  BOOST_TEST(copied(batch.hashes_of(event)) == numbers_of(expected["block_hashes"]), boost::test_tools::per_element());
  const json leading = expected.value("leading_hashes", json::array());
  BOOST_TEST(copied(batch.leading_hashes_of(event)) == numbers_of(leading), boost::test_tools::per_element());
  BOOST_TEST(batch.medium_of(event) == expected["tier"].get<std::string>());
  BOOST_TEST(event.group.has_value() == expected.contains("group_idx"));
  if (event.group) BOOST_TEST(*event.group == expected["group_idx"].get<std::int32_t>());
  if (event.kind == event_kind::stored) check_stored(batch, event, expected);
}

void check_case(const json& present) {
  const event_adapter adapter(*enum_named<event_engine>(present.value("engine", "auto")));
  const auto topic = present["topic"].get<std::string>();
  const auto bytes = test::bytes_of_hex(present["payload_hex"].get<std::string>());
  event_batch batch;
  const auto parsed = adapter.parse(topic, bytes, batch);
  BOOST_TEST(parsed.has_value() != present.value("bad_batch", false));
  if (!parsed) return;
  BOOST_TEST(parsed->pod == present["pod"].get<std::string>());
  BOOST_TEST(parsed->model == present["model"].get<std::string>());
  BOOST_TEST(batch.dp_rank == present["dp_rank"].get<std::uint32_t>());
  BOOST_TEST(batch.bad_events() == present["bad_events"].get<std::uint32_t>());
  BOOST_TEST(batch.unknown_events() == present["unknown_events"].get<std::uint32_t>());
  const json faults = present.value("faults", json::object());
  for (const auto& [name, count] : faults.items()) {
    BOOST_TEST(batch.faults_of(*enum_named<event_fault>(name)) == count.get<std::uint32_t>(), name);
  }
  BOOST_REQUIRE(batch.events.size() == present["events"].size());
  for (std::size_t i = 0; i < batch.events.size(); ++i) {
    BOOST_TEST_CONTEXT("event " << i) {
      check_event(batch, batch.events[i], present["events"][i]);
    }
  }
}

payload read_payload(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Batches that vLLM sent, beside what it encoded.
struct captured_batch {
  std::filesystem::path path;
  payload bytes;
  json frame;
};

std::vector<captured_batch> captured_batches(std::string_view folder) {
  std::vector<captured_batch> batches;
  const auto root = test::shared_case(folder);
  if (root.empty()) return batches;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.path().extension() != ".bin") continue;
    auto described = entry.path();
    batches.push_back(
        {entry.path(), read_payload(entry.path()), test::read_json(described.replace_extension(".json"))});
  }
  return batches;
}

std::uint64_t hash_of(const json& value) {
  if (!value.is_object()) return value.get<std::uint64_t>();
  const auto digits = value["hex"].get<std::string>();
  std::uint64_t number = 0;
  std::from_chars(digits.data() + digits.size() - 16, digits.data() + digits.size(), number, 16);
  return number;
}

/// An event as vLLM has it, in the words of decode.json.
json as_expected(const json& event) {
  json made{{"type", event["type"]}, {"tier", "gpu"}};
  if (event["type"] == "AllBlocksCleared") return made;
  for (const json& hash : event["block_hashes"]) made["block_hashes"].push_back(std::to_string(hash_of(hash)));
  if (event["medium"] == "CPU") made["tier"] = "cpu";
  for (const char* name : {"group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "extra_keys"}) {
    if (event.contains(name) && !event[name].is_null()) made[name] = event[name];
  }
  if (event["type"] != "BlockStored") return made;
  const json& parent = event["parent_block_hash"];
  made["parent"] = parent.is_null() ? parent : json(std::to_string(hash_of(parent)));
  made["tokens"] = event["token_ids"].size();
  made["block_size"] = event["block_size"];
  made["lora_name"] = event["lora_name"];
  return made;
}

void check_captured(const captured_batch& captured) {
  event_batch batch;
  const auto topic = captured.frame["topic"].get<std::string>();
  const auto parsed = event_adapter(event_engine::vllm).parse(topic, captured.bytes, batch);
  BOOST_REQUIRE(parsed);
  BOOST_TEST(parsed->model == "tiny");
  const json& decoded = captured.frame["decoded"];
  BOOST_TEST(batch.timestamp == decoded[0].get<double>());
  BOOST_TEST(batch.bad_events() + batch.unknown_events() == 0U);
  BOOST_REQUIRE(batch.events.size() == decoded[1].size());
  for (std::size_t i = 0; i < batch.events.size(); ++i) {
    const json& event = decoded[1][i];
    check_event(batch, batch.events[i], as_expected(event));
    if (event.contains("token_ids")) {
      BOOST_TEST(copied(batch.tokens_of(batch.events[i])) == event["token_ids"].get<std::vector<std::uint32_t>>(),
                 boost::test_tools::per_element());
    }
  }
}

/// All payloads of all files.
std::vector<payload> all_payloads() {
  std::vector<payload> all;
  for (const json& file : test::case_files("decode.json", "indexer/decode.json")) {
    for (const json& each : file["cases"]) all.push_back(test::bytes_of_hex(each["payload_hex"].get<std::string>()));
  }
  for (const char* folder : {"vllm/events_int", "vllm/events_bytes"}) {
    for (captured_batch& each : captured_batches(folder)) all.push_back(std::move(each.bytes));
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(decoded_cases)

BOOST_AUTO_TEST_CASE(every_case_decodes_to_what_it_means) {
  for (const json& file : test::case_files("decode.json", "indexer/decode.json")) {
    BOOST_TEST(file["cases"].size() > 0U);
    for (const json& each : file["cases"]) {
      BOOST_TEST_CONTEXT(each["name"].get<std::string>()) {
        check_case(each);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(every_payload_is_one_of_the_cases) {
  const auto payloads = test::shared_case("event_payloads.json");
  const auto cases = test::shared_case("indexer/decode.json");
  if (payloads.empty() || cases.empty()) return;
  const json all = test::read_json(payloads);
  const json known = test::read_json(cases)["cases"];
  BOOST_REQUIRE(all.size() == known.size());
  for (std::size_t i = 0; i < all.size(); ++i) BOOST_TEST(all[i]["payload_hex"] == known[i]["payload_hex"]);
}

BOOST_AUTO_TEST_CASE(batches_that_vllm_sent_decode_to_what_it_encoded) {
  for (const char* folder : {"vllm/events_int", "vllm/events_bytes"}) {
    for (const captured_batch& each : captured_batches(folder)) {
      BOOST_TEST_CONTEXT(each.path.string()) {
        check_captured(each);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_replay_has_the_batches_that_were_sent) {
  for (const std::string folder : {"vllm/events_int", "vllm/events_bytes"}) {
    const auto path = test::shared_case(folder + "/replay.json");
    if (path.empty()) continue;
    for (const json& frames : test::read_json(path)) {  // "", topic, number, bytes of the payload
      const auto sequence = test::bytes_of_hex(frames[2].get<std::string>());
      if (sequence[0] == std::byte{0xff}) continue;  // the end
      const auto topic = test::bytes_of_hex(frames[1].get<std::string>());
      const event_topic parts = parse_topic({reinterpret_cast<const char*>(topic.data()), topic.size()});
      BOOST_TEST(parts.model == "tiny");
      const auto file = path.parent_path() / ("000" + std::to_string(static_cast<int>(sequence[7])) + ".bin");
      BOOST_TEST(read_payload(file).size() == frames[3].get<std::size_t>());
    }
  }
}

BOOST_AUTO_TEST_CASE(pods_go_to_llm_ds_workers) {
  BOOST_TEST(event_adapter::sharding_key("pod") == 1160989932U);
  BOOST_TEST(event_adapter::sharding_key("") == 2166136261U);
  const auto path = test::shared_case("event_vectors.json");
  if (path.empty()) return;
  const json vectors = test::read_json(path);
  for (const json& each : vectors["sharding"]) {
    const std::uint32_t key = event_adapter::sharding_key(each["key"].get<std::string>());
    BOOST_TEST(key == each["fnv1a32"].get<std::uint32_t>());
    BOOST_TEST(key % 16 == each["queue_of_16"].get<std::uint32_t>());
  }
}

BOOST_AUTO_TEST_CASE(a_clear_empties_what_the_engine_clears) {
  BOOST_TEST((event_adapter(event_engine::vllm).cleared_by("kv@p@m") == clear_scope::gpu));
  BOOST_TEST((event_adapter(event_engine::sglang).cleared_by("kv@p@m") == clear_scope::all));
  BOOST_TEST((event_adapter(event_engine::automatic).cleared_by("kv@p@m") == clear_scope::gpu));
  BOOST_TEST((event_adapter(event_engine::automatic).cleared_by("kv@node:a@m") == clear_scope::all));
}

BOOST_AUTO_TEST_CASE(groups_have_a_use_by_their_attention) {
  BOOST_TEST((use_of(attention_kind::unstated) == group_use::prefix));
  BOOST_TEST((use_of(attention_kind::sink_full_attention) == group_use::prefix));
  BOOST_TEST((use_of(attention_kind::sliding_window_mla) == group_use::window));
  BOOST_TEST((use_of(attention_kind::other) == group_use::ignored));
}

BOOST_AUTO_TEST_CASE(decoding_again_allocates_nothing) {
  const auto payloads = all_payloads();
  const event_adapter adapter(event_engine::automatic);
  event_batch batch;
  const auto decode_all = [&] {
    for (const payload& each : payloads) static_cast<void>(adapter.parse("kv@node:a@m", each, batch));
  };
  decode_all();
  std::uint64_t refused = 0;  // an error has a text
  for (const payload& each : payloads) {
    const auto counts =
        test::allocations_during([&] { refused += adapter.parse("kv@node:a@m", each, batch) ? 0U : 1U; });
    if (refused == 0) BOOST_TEST(counts.calls == 0U);
    refused = 0;
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
