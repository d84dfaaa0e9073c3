#include "services/indexer/keys/token_processor.hpp"

#include <xxhash.h>

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <numeric>
#include <set>

#include "tests/support/allocations.hpp"
#include "tests/support/indexer_values.hpp"

namespace cenote::indexer {

namespace {

using keys = std::vector<std::uint64_t>;
using test::json;

constexpr key_space base{.model = "Qwen/Qwen3-32B", .lora_name = {}, .block_tokens = 16};

std::vector<std::uint32_t> numbered_tokens(std::size_t count) {
  std::vector<std::uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 60'000U);
  return tokens;
}

keys made_keys(const token_processor& processor, const token_run& run, const key_space& space) {
  keys made;
  BOOST_REQUIRE(processor.keys_of(run, space, made));
  return made;
}

constexpr key_chain both[] = {key_chain::xxh3, key_chain::fnv64_cbor};

}  // namespace

BOOST_AUTO_TEST_SUITE(token_processors)

BOOST_AUTO_TEST_CASE(a_key_is_xxh3_of_the_tokens_seeded_with_the_parent) {
  const token_processor processor(key_chain::xxh3, "seed");
  for (const std::uint32_t size : {1U, 16U, 60U, 61U, 1056U}) {
    const auto tokens = numbered_tokens(2 * size);
    const key_space space{.model = "m", .lora_name = {}, .block_tokens = size};
    const keys made = made_keys(processor, {.tokens = tokens, .extra_keys = {}, .parent = {}}, space);
    BOOST_REQUIRE(made.size() == 2U);
    BOOST_TEST(made[0] == XXH3_64bits_withSeed(tokens.data(), 4 * size, processor.root_of(space)));
    BOOST_TEST(made[1] == XXH3_64bits_withSeed(tokens.data() + size, 4 * size, made[0]));
  }
}

BOOST_AUTO_TEST_CASE(keys_of_a_given_seed_are_the_same_in_every_release) {  // replicas share them in Redis
  const token_processor processor(key_chain::xxh3, "seed");
  const auto tokens = numbered_tokens(32);
  const extra_key_table extra = table_of(json::parse(R"([null, ["salt"]])"));
  BOOST_TEST(made_keys(processor, {.tokens = tokens, .extra_keys = {}, .parent = {}}, base) ==
                 (keys{7807780908861943151U, 15736202822674528126U}),
             boost::test_tools::per_element());
  BOOST_TEST(made_keys(processor, {.tokens = tokens, .extra_keys = extra.view(), .parent = {}}, base) ==
                 (keys{7807780908861943151U, 6281294678099091763U}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_chain_that_goes_on_has_the_keys_of_the_whole) {
  const auto tokens = numbered_tokens(16 * 9 + 5);
  const extra_key_table extra =
      table_of(json::parse(R"([null, ["a"], null, null, ["b", 3], null, null, null, ["c"]])"));
  for (const key_chain chain : both) {
    const token_processor processor(chain, "42");
    const keys whole = made_keys(processor, {.tokens = tokens, .extra_keys = extra.view(), .parent = {}}, base);
    BOOST_TEST(whole.size() == 9U);
    for (std::uint32_t cut = 1; cut < 9; ++cut) {
      const token_run rest{.tokens = std::span(tokens).subspan(16 * cut),
                           .extra_keys = extra.view({cut, 9 - cut}),
                           .parent = whole[cut - 1]};
      BOOST_TEST(made_keys(processor, rest, base) == keys(whole.begin() + cut, whole.end()),
                 boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_group_of_keys_is_the_beginning_of_all) {
  const auto tokens = numbered_tokens(16 * 9 + 5);
  for (const key_chain chain : both) {
    const token_processor processor(chain, "42");
    const token_run run{.tokens = tokens, .extra_keys = {}, .parent = {}};
    const keys whole = made_keys(processor, run, base);
    keys group(4);
    BOOST_TEST(processor.write_keys(run, base, group) == 4U);
    BOOST_TEST(group == keys(whole.begin(), whole.begin() + 4), boost::test_tools::per_element());
    keys room(20);
    BOOST_TEST(processor.write_keys(run, base, room) == 9U);
    BOOST_TEST(processor.write_keys(run, {.model = "m", .lora_name = {}, .block_tokens = 0}, room) == 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_partial_block_has_no_key) {
  const auto tokens = numbered_tokens(16 * 2);
  for (const key_chain chain : both) {
    const token_processor processor(chain, "");
    const auto count = [&](std::size_t size) {
      return made_keys(processor, {.tokens = std::span(tokens).first(size), .extra_keys = {}, .parent = {}}, base)
          .size();
    };
    BOOST_TEST(count(0) == 0U);
    BOOST_TEST(count(15) == 0U);
    BOOST_TEST(count(16) == 1U);
    BOOST_TEST(count(31) == 1U);
    BOOST_TEST(count(32) == 2U);
  }
}

BOOST_AUTO_TEST_CASE(spaces_seeds_and_extra_keys_separate_equal_tokens) {
  const auto tokens = numbered_tokens(16);
  const auto key = [&](key_chain chain, std::string_view seed, const key_space& space, const char* extra) {
    const extra_key_table table = table_of(json::parse(extra));
    return made_keys(token_processor(chain, seed), {.tokens = tokens, .extra_keys = table.view(), .parent = {}}, space)
        .front();
  };
  for (const key_chain chain : both) {
    std::set<std::uint64_t> all;
    for (const std::string_view seed : {"", "0", "1"}) {
      for (const key_space& space : {base, key_space{"m", {}, 16}, key_space{"m", "sql", 16}}) {
        for (const char* extra : {"[]", R"([["salt1"]])", R"([["salt2"]])", R"([["salt1", "salt2"]])",
                                  R"([["salt2", "salt1"]])", R"([[["image", 3]]])"}) {
          all.insert(key(chain, seed, space, extra));
        }
      }
    }
    BOOST_TEST(all.size() == 3U * 3 * 6);
    // An adapter's name is a space of its own, whatever the model; repeated in the list, it changes nothing.
    BOOST_TEST(key(chain, "", {"m", "sql", 16}, "[]") == key(chain, "", {"sql", {}, 16}, "[]"));
    BOOST_TEST(key(chain, "", {"m", "sql", 16}, R"([["sql"]])") == key(chain, "", {"m", "sql", 16}, "[]"));
    BOOST_TEST(key(chain, "", {"m", "sql", 16}, R"([["sql", "s"]])") == key(chain, "", {"m", "sql", 16}, R"([["s"]])"));
    BOOST_TEST(key(chain, "", base, R"([[]])") == key(chain, "", base, "[null]"));
  }
  BOOST_TEST(token_processor(key_chain::xxh3, "").root_of({"m", {}, 16}) !=
             token_processor(key_chain::xxh3, "").root_of({"m", {}, 32}));
  // An item's offset separates only here: llm-d leaves it out.
  BOOST_TEST(key(key_chain::xxh3, "", base, R"([[["image", 3]]])") !=
             key(key_chain::xxh3, "", base, R"([[["image", 4]]])"));
}

BOOST_AUTO_TEST_CASE(extra_keys_are_not_taken_for_a_block_of_tokens) {
  const token_processor processor(key_chain::xxh3, "");
  const key_space pairs{.model = "m", .lora_name = {}, .block_tokens = 2};
  const extra_key_table table = table_of(json::parse(R"([["1234567"]])"));  // eight bytes without the list's head
  const auto list = table.view().list(0);
  BOOST_REQUIRE(list.size() == 9U);
  std::vector<std::uint32_t> tokens(4, 7);
  std::memcpy(tokens.data(), list.data() + 1, 8);
  const keys two = made_keys(processor, {.tokens = tokens, .extra_keys = {}, .parent = {}}, pairs);
  const token_run marked{.tokens = std::span(tokens).subspan(2), .extra_keys = table.view(), .parent = {}};
  BOOST_TEST(made_keys(processor, marked, pairs).front() != two.back());
}

BOOST_AUTO_TEST_CASE(lists_that_do_not_match_the_blocks_are_refused) {
  const auto tokens = numbered_tokens(40);
  const extra_key_table one = table_of(json::parse("[null]"));
  keys made{1};
  const token_processor processor(key_chain::fnv64_cbor, "");
  const auto refused = processor.keys_of({.tokens = tokens, .extra_keys = one.view(), .parent = {}}, base, made);
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code() == error_code::invalid_argument));
  BOOST_TEST(refused.error().message() == "extra keys for 1 blocks, where 40 tokens are 2 blocks of 16");
  BOOST_TEST(made.empty());
  BOOST_TEST(!processor.keys_of({.tokens = tokens, .extra_keys = {}, .parent = {}}, {"m", {}, 0}, made));
}

BOOST_AUTO_TEST_CASE(keys_allocate_nothing_where_there_is_room) {
  const auto tokens = numbered_tokens(16 * 100);
  const extra_key_table extra = table_of(json(std::vector<std::vector<std::string>>(100, {"salt", "image"})));
  for (const key_chain chain : both) {
    const token_processor processor(chain, "42");
    keys made;
    made.reserve(100);
    const auto counts = test::allocations_during([&] {
      static_cast<void>(processor.keys_of({.tokens = tokens, .extra_keys = extra.view(), .parent = {}}, base, made));
    });
    BOOST_TEST(counts.calls == 0U);
    BOOST_TEST(made.size() == 100U);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
