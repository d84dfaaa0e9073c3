#include "services/indexer/keys/fnv_chain.hpp"

#include <boost/test/unit_test.hpp>
#include <map>

#include "services/indexer/keys/multimodal_items.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "tests/support/indexer_values.hpp"

namespace cenote::indexer {

namespace {

using test::json;

std::vector<json> vector_files() {
  return test::case_files("keys.json", "llmd_hash_vectors.json");
}

std::vector<std::uint32_t> tokens_of(const json& chain) {
  if (chain.contains("tokens") && chain["tokens"].is_array()) return chain["tokens"].get<std::vector<std::uint32_t>>();
  std::vector<std::uint32_t> tokens(chain["num_tokens"].get<std::size_t>());  // the generator that the file describes
  BOOST_REQUIRE(chain["token_gen"].get<std::string>().starts_with("lcg seed=1"));
  std::uint32_t state = 1;
  for (std::uint32_t& token : tokens) {
    state = state * 1664525 + 1013904223;
    token = (state >> 8) % 151936;
  }
  return tokens;
}

/// The value in the place of the extra keys, as the file's CBOR has it.
std::vector<std::byte> last_item(const std::vector<std::byte>& item, const json& call) {
  std::size_t at = 1;  // behind the list's head
  at += item_size(std::span(item).subspan(at));
  at += item_size(std::span(item).subspan(at));
  BOOST_TEST((at < item.size()), call.dump());
  return {item.begin() + static_cast<std::ptrdiff_t>(at), item.end()};
}

std::vector<std::uint64_t> keys_of_chain(const json& chain, const std::vector<std::uint32_t>& tokens) {
  const auto model = chain["model"].get<std::string>();
  const token_processor processor(key_chain::fnv64_cbor, chain["seed"].get<std::string>());
  const key_space space{.model = model, .lora_name = {}, .block_tokens = chain["block_size"].get<std::uint32_t>()};
  const extra_key_table extra =
      chain.contains("mm_hashes_per_block") ? table_of(chain["mm_hashes_per_block"]) : extra_key_table{};
  token_run run{.tokens = tokens, .extra_keys = extra.view(), .parent = {}};
  if (const auto parent = test::number_of(chain["parent_key"]); parent != 0) run.parent = parent;
  std::vector<std::uint64_t> keys;
  BOOST_REQUIRE(processor.keys_of(run, space, keys));
  return keys;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fnv_chains)

BOOST_AUTO_TEST_CASE(fnv_is_what_llm_d_hashes_seeds_and_pods_with) {
  for (const json& file : vector_files()) {
    for (const json& each : file["fnv64a_of_bytes"]) {
      BOOST_TEST(fnv64(each["bytes"].get<std::string>()) == test::number_of(each["hash"]));
    }
  }
  BOOST_TEST(fnv32("") == 2166136261U);
  BOOST_TEST(fnv32("10.0.0.7:8000") == 1125202411U);
}

BOOST_AUTO_TEST_CASE(every_chain_has_llm_ds_keys) {
  for (const json& file : vector_files()) {
    BOOST_TEST(file["chains"].size() > 0U);
    for (const json& chain : file["chains"]) {
      BOOST_TEST_CONTEXT(chain["name"].get<std::string>()) {
        const fnv_chain fnv(chain["seed"].get<std::string>());
        BOOST_TEST(fnv.initial() == test::number_of(chain["init_hash_fnv64a_of_seed"]));
        if (chain.contains("root_hash")) {
          BOOST_TEST(fnv.root(chain["model"].get<std::string>()) == test::number_of(chain["root_hash"]));
        }
        std::vector<std::uint64_t> expected;
        for (const json& key : chain["keys"]) expected.push_back(test::number_of(key));
        BOOST_TEST(keys_of_chain(chain, tokens_of(chain)) == expected, boost::test_tools::per_element());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(every_raw_call_has_llm_ds_hash_whatever_its_extra_value_is) {
  for (const json& file : vector_files()) {
    BOOST_TEST(file["raw_hash_calls"].size() > 0U);
    for (const json& call : file["raw_hash_calls"]) {
      BOOST_TEST_CONTEXT(call["name"].get<std::string>() << " after " << call["parent"].get<std::string>()) {
        const auto item = test::bytes_of_hex(call["cbor_hex"].get<std::string>());
        const std::uint64_t hash = test::number_of(call["hash"]);
        const std::uint64_t parent = test::number_of(call["parent"]);
        BOOST_TEST(fnv64(item) == hash);
        const auto extra = last_item(item, call);
        // JSON has no bytes: the file gives them as Base64.
        if (call["extra_go_type"] != "[]uint8") BOOST_TEST((canonical(call["extra"]) == extra));
        if (call["tokens"].is_null()) {
          BOOST_TEST(fnv_chain::key_without_tokens(parent, extra) == hash);
        } else {
          const auto tokens = call["tokens"].get<std::vector<std::uint32_t>>();
          BOOST_TEST(fnv_chain::key(parent, tokens, std::span<const std::byte>(extra)) == hash);
          if (call["extra"].is_null()) BOOST_TEST(fnv_chain::key(parent, tokens) == hash);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(extra_keys_of_events_become_llm_ds_hashes_of_items) {
  const std::vector<std::uint32_t> tokens{1, 2, 3, 4};
  for (const json& file : vector_files()) {
    for (const json& each : file["parse_raw_extra_keys"]) {
      if (each["raw"].is_null()) continue;
      const extra_key_table table = table_of(each["raw"]);
      for (std::size_t block = 0; block < each["raw"].size(); ++block) {
        json hashes;  // null, or the list that llm-d encodes
        for (const json& hash : each["result"][block]) hashes.push_back({{"Hash", hash}});
        const auto expected = fnv_chain::key(7, tokens, std::span<const std::byte>(canonical(hashes)));
        BOOST_TEST(fnv_chain::key(7, tokens, elements_of(table.view().list(block), {})) == expected, each.dump());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(an_item_marks_the_blocks_that_its_placeholder_overlaps) {
  for (const json& file : vector_files()) {
    for (const json& each : file["compute_block_extra_features"]) {
      std::vector<std::string> names;
      std::vector<multimodal_item> items;
      for (const auto& [modality, hashes] : each["mm_hashes"].items()) {
        const json& places = each["placeholders"][modality];
        for (std::size_t i = 0; i < std::min(hashes.size(), places.size()); ++i) {
          names.push_back(hashes[i].get<std::string>());
          items.push_back({{}, places[i]["Offset"].get<std::uint64_t>(), places[i]["Length"].get<std::uint64_t>()});
        }
      }
      for (std::size_t i = 0; i < items.size(); ++i) items[i].hash = names[i];
      extra_key_table table;
      write_item_keys(items, each["block_size"].get<std::uint32_t>(), each["num_tokens"].get<std::size_t>(), table);
      const extra_key_table expected = each["result"].is_null() ? extra_key_table{} : table_of(each["result"]);
      BOOST_TEST((table.bytes == expected.bytes), each.dump());
      BOOST_TEST((table.blocks == expected.blocks), each.dump());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
