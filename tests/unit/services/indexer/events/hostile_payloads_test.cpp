#include <boost/test/unit_test.hpp>
#include <random>

#include "services/indexer/events/event_adapter.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/indexer_cases.hpp"
#include "tests/support/msgpack_writer.hpp"

namespace cenote::indexer {

namespace {

using test::msgpack_writer;

constexpr std::string_view hostile_topic = "kv@p@m";

/// [ts, [event]]; the event follows.
msgpack_writer batch_of_one() {
  return std::move(msgpack_writer().array(2).floating(1).array(1));
}

result<event_topic> parse(std::span<const std::byte> bytes, event_batch& batch) {
  return event_adapter(event_engine::automatic).parse(hostile_topic, bytes, batch);
}

/// An event with every field.
msgpack_writer full_batch() {
  msgpack_writer made = batch_of_one();
  const std::vector<std::byte> hash(32, std::byte{7});
  made.map(11).text("type").text("BlockStored").text("block_hashes").array(2).bytes(hash).integer(1ULL << 40);
  made.text("parent_block_hash").wide(0xd3, ~0ULL, 8).text("token_ids").integers({1, 200, 60'000, 150'000});
  made.text("block_size").integer(2).text("medium").text("NOWHERE").text("lora_name").text("sql");
  made.text("extra_keys").array(2).nil().array(3).text("image").array(2).text("x").integer(3).map(1).text("k").nil();
  made.text("group_idx").integer(0).text("kv_cache_spec_kind").text("full_attention");
  made.text("kv_cache_spec_sliding_window").nil();
  return made;
}

/// Every range lies in its array.
void check_ranges(const event_batch& batch) {
  const auto is_within = [](array_range range, std::size_t size) {
    return std::size_t{range.first} + range.size <= size || range.empty();
  };
  bool are_within = true;
  for (const engine_event& event : batch.events) {
    are_within = are_within && is_within(event.hashes, batch.hashes.size()) &&
                 is_within(event.tokens, batch.tokens.size()) &&
                 is_within(event.extra_keys, batch.extra_keys.blocks.size()) &&
                 is_within(event.lora_name, batch.text.size()) && is_within(event.medium_text, batch.text.size()) &&
                 (event.extra_keys.empty() || event.extra_keys.size == event.hashes.size);
  }
  for (const array_range list : batch.extra_keys.blocks) {
    are_within = are_within && is_within(list, batch.extra_keys.bytes.size());
  }
  BOOST_TEST(are_within);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(hostile_payloads)

BOOST_AUTO_TEST_CASE(a_payload_that_is_cut_anywhere_is_refused_whole) {
  const msgpack_writer whole = full_batch();
  event_batch batch;
  BOOST_REQUIRE(parse(whole.data(), batch));
  BOOST_TEST(batch.events.size() == 1U);
  BOOST_TEST(batch.bad_events() == 0U);
  for (std::size_t size = 0; size < whole.data().size(); ++size) {
    const auto parsed = parse(std::span(whole.data()).first(size), batch);
    BOOST_REQUIRE(!parsed);
    BOOST_TEST((parsed.error().code() == error_code::malformed));
    BOOST_TEST(batch.events.empty());
    BOOST_TEST(batch.hashes.empty());
  }
  msgpack_writer longer = whole;
  BOOST_TEST(!parse(longer.nil().data(), batch));
}

BOOST_AUTO_TEST_CASE(an_announced_length_beyond_the_payload_allocates_nothing_for_it) {
  const auto refuses = [](const msgpack_writer& writer) {
    event_batch batch;
    bool is_refused = false;
    const auto counts = test::allocations_during([&] { is_refused = !parse(writer.data(), batch); });
    BOOST_TEST(is_refused);
    BOOST_TEST(counts.live_bytes < 4096);
  };
  for (const std::uint64_t announced : {1'000'000ULL, 0xffff'ffffULL}) {
    refuses(msgpack_writer().array(2).nil().wide(0xdd, announced, 4));
    refuses(msgpack_writer().wide(0xdd, announced, 4));
    refuses(msgpack_writer().wide(0xdf, announced, 4));
    refuses(batch_of_one().wide(0xdd, announced, 4));
    refuses(batch_of_one().wide(0xdf, announced, 4));
    refuses(batch_of_one().array(2).text("BlockRemoved").wide(0xdd, announced, 4).integer(1));
    refuses(batch_of_one().array(5).text("BlockStored").integers({1}).nil().wide(0xdd, announced, 4).integer(1));
    refuses(batch_of_one().map(2).text("type").text("BlockStored").text("extra_keys").wide(0xdd, announced, 4).nil());
    refuses(
        batch_of_one().map(2).text("type").text("BlockStored").text("extra_keys").array(1).wide(0xdd, announced, 4));
    for (const unsigned lead : {0xdbU, 0xc6U}) {
      refuses(batch_of_one().wide(lead, announced, 4));
      refuses(batch_of_one().array(2).text("BlockRemoved").array(1).wide(lead, announced, 4));
      refuses(batch_of_one().array(2).text("Unknown").wide(lead, announced, 4));
    }
    refuses(batch_of_one().array(2).text("Unknown").wide(0xc9, announced, 4));
  }
}

BOOST_AUTO_TEST_CASE(more_levels_than_eight_cost_the_event) {
  for (const unsigned lead : {0x91U, 0x81U}) {
    for (const std::size_t levels : {1U, 3U, 4U, 5U, 6U, 7U, 1000U, 1'000'000U}) {
      for (const std::string_view field : {"extra_keys", "unknown"}) {
        msgpack_writer made =
            std::move(msgpack_writer().array(2).nil().array(2).map(3).text("type").text("BlockStored"));
        made.text("block_hashes").integers({1}).text(field);
        const bool is_keys = field == "extra_keys";
        if (is_keys) made.array(1).array(1);  // the fourth and fifth of eight
        for (std::size_t i = 0; i < levels; ++i) made.raw({lead}), lead == 0x81U ? made.text("k") : made;
        made.nil().array(1).text("AllBlocksCleared");
        event_batch batch;
        BOOST_REQUIRE(parse(made.data(), batch));
        const bool is_deep = levels > (is_keys ? 3U : 5U);
        BOOST_TEST_CONTEXT(field << " with " << levels << " levels") {
          BOOST_TEST(batch.faults_of(event_fault::depth) == (is_deep ? 1U : 0U));
          BOOST_TEST(batch.events.size() == (is_deep ? 1U : 2U));
          BOOST_TEST((batch.events.back().kind == event_kind::cleared));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_batch_beyond_its_bounds_is_refused) {
  event_batch batch;
  const auto code_of = [&](const msgpack_writer& writer) {
    const auto parsed = parse(writer.data(), batch);
    BOOST_TEST(batch.events.empty());
    return parsed ? error_code::ok : parsed.error().code();
  };
  const std::vector<std::byte> ones(batch_limits::blocks + 1, std::byte{1});
  const auto most = std::span(ones).first(batch_limits::blocks);
  msgpack_writer too_many_hashes = batch_of_one();
  too_many_hashes.array(2).text("BlockRemoved").array(ones.size()).raw(ones);
  BOOST_TEST((code_of(too_many_hashes) == error_code::limit_exceeded));
  msgpack_writer too_many_together = std::move(msgpack_writer().array(2).nil().array(2));
  too_many_together.array(2).text("BlockRemoved").array(most.size()).raw(most);
  too_many_together.array(2).text("BlockRemoved").integers({1});
  BOOST_TEST((code_of(too_many_together) == error_code::limit_exceeded));
  BOOST_TEST((code_of(msgpack_writer().array(2).nil().array(ones.size()).raw(ones)) == error_code::limit_exceeded));
  const std::vector<std::byte> tokens(batch_limits::tokens + 1, std::byte{1});
  msgpack_writer too_many_tokens = batch_of_one();
  too_many_tokens.array(5).text("BlockStored").integers({1}).nil().array(tokens.size()).raw(tokens).integer(16);
  BOOST_TEST((code_of(too_many_tokens) == error_code::limit_exceeded));
  const std::vector<std::byte> large(batch_limits::payload_bytes + 1);
  BOOST_TEST((code_of(msgpack_writer().raw(large)) == error_code::limit_exceeded));
}

BOOST_AUTO_TEST_CASE(as_many_blocks_as_are_allowed_are_decoded) {
  const std::vector<std::byte> most(batch_limits::blocks, std::byte{1});
  event_batch batch;
  BOOST_REQUIRE(parse(batch_of_one().array(2).text("BlockRemoved").array(most.size()).raw(most).data(), batch));
  BOOST_TEST(batch.hashes.size() == most.size());
}

BOOST_AUTO_TEST_CASE(names_are_bounded) {
  const auto events_with = [](std::string_view field, std::size_t size) {
    event_batch batch;
    const std::string name(size, 'X');
    msgpack_writer made = batch_of_one();
    made.map(3).text("type").text("BlockStored").text("block_hashes").integers({1}).text(field).text(name);
    BOOST_REQUIRE(parse(made.data(), batch));
    return batch.events.size();
  };
  for (const std::string_view field : {"medium", "lora_name", "cache_salt", "kv_cache_spec_kind"}) {
    BOOST_TEST(events_with(field, batch_limits::name_bytes) == 1U);
    BOOST_TEST(events_with(field, batch_limits::name_bytes + 1) == 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_bad_event_leaves_nothing_in_the_arrays) {
  event_batch batch;
  msgpack_writer made = std::move(msgpack_writer().array(2).nil().array(3));
  made.array(3).text("BlockRemoved").integers({1, 2}).text("X");
  made.map(6).text("type").text("BlockStored").text("block_hashes").integers({3}).text("token_ids").integers({4});
  made.text("extra_keys").array(1).array(1).text("k").text("medium").text("Y").text("group_idx").text("bad");
  made.array(3).text("BlockRemoved").integers({5}).text("Z");
  BOOST_REQUIRE(parse(made.data(), batch));
  BOOST_TEST(batch.hashes == (std::vector<std::uint64_t>{1, 2, 5}), boost::test_tools::per_element());
  BOOST_TEST(batch.tokens.empty());
  BOOST_TEST(batch.extra_keys.blocks.empty());
  BOOST_TEST(batch.extra_keys.bytes.empty());
  BOOST_TEST(std::string(batch.text.begin(), batch.text.end()) == "xz");
  BOOST_TEST(batch.medium_of(batch.events[1]) == "z");
  BOOST_TEST(batch.faults_of(event_fault::group) == 1U);
}

BOOST_AUTO_TEST_CASE(any_change_of_a_payload_is_refused_or_gives_a_whole_batch) {
  const msgpack_writer whole = full_batch();
  std::mt19937_64 random(20260601);
  event_batch batch;
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = whole.data();
    for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (parse(bytes, batch)) {
      check_ranges(batch);
    } else {
      BOOST_TEST(batch.events.empty());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
