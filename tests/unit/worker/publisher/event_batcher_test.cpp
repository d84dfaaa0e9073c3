#include "worker/publisher/event_batcher.hpp"

#include <boost/test/unit_test.hpp>

#include "services/indexer/events/event_adapter.hpp"
#include "tests/unit/tiers/block_changes/placed_blocks.hpp"

namespace cenote::publishing::event_batcher_test {

using cenote::testing::key_of;

namespace {

constexpr std::string_view topic = "kv@node:n@model";

indexer::event_batch decoded(const std::string& payload) {
  indexer::event_batch batch;
  const indexer::event_adapter adapter(indexer::event_engine::automatic);
  BOOST_REQUIRE(adapter.parse(topic, std::as_bytes(std::span(payload)), batch).has_value());
  BOOST_TEST(batch.bad_events() == 0U);
  return batch;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(event_batcher_suite)

BOOST_AUTO_TEST_CASE(changes_of_one_kind_become_one_event_that_an_indexer_reads) {
  event_batcher batcher;
  batcher.add(tier_change_kind::stored, event_medium::CPU, {}, key_of(1));
  batcher.add(tier_change_kind::stored, event_medium::CPU, {}, key_of(2));
  batcher.add(tier_change_kind::stored, event_medium::DISK, {}, key_of(1));
  batcher.add(tier_change_kind::removed, event_medium::CPU, 3, key_of(1));
  batcher.clear(event_medium::DISK);
  const auto payloads = batcher.take(12.5);
  BOOST_TEST(batcher.is_empty());
  BOOST_REQUIRE(payloads.size() == 1U);
  const auto batch = decoded(payloads[0]);
  BOOST_TEST(batch.timestamp == 12.5);
  BOOST_REQUIRE(batch.events.size() == 4U);
  BOOST_TEST(batch.hashes_of(batch.events[0]).size() == 2U);
  BOOST_TEST((batch.events[0].medium == indexer::block_medium::cpu));
  BOOST_TEST(!batch.events[0].group.has_value());
  BOOST_TEST((batch.events[1].medium == indexer::block_medium::disk));
  BOOST_TEST((batch.events[2].kind == indexer::event_kind::removed));
  BOOST_TEST(batch.events[2].group.value() == 3);
  BOOST_TEST((batch.events[3].kind == indexer::event_kind::cleared));
  BOOST_TEST((batch.events[3].medium == indexer::block_medium::disk));
}

BOOST_AUTO_TEST_CASE(a_key_is_written_whole) {
  std::array<std::byte, 32> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i + 1);
  event_batcher batcher;
  batcher.add(tier_change_kind::stored, event_medium::CPU, {}, full_key(bytes));
  const auto payload = batcher.take(0).at(0);
  const std::string whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  BOOST_TEST(payload.find("\xc4\x20" + whole) != std::string::npos);
  const auto batch = decoded(payload);
  BOOST_TEST(batch.hashes.at(0) == 0x191a1b1c1d1e1f20U);          // vLLM's
  BOOST_TEST(batch.leading_hashes.at(0) == 0x0102030405060708U);  // SGLang's
}

BOOST_AUTO_TEST_CASE(batches_are_bounded_and_keep_the_order) {
  event_batcher batcher;
  constexpr std::uint64_t count = 5'000;
  for (std::uint64_t n = 0; n < count; ++n)
    batcher.add(n % 7 == 0 ? tier_change_kind::removed : tier_change_kind::stored, event_medium::CPU, {}, key_of(n));
  for (std::uint64_t n = count; n < 2 * count; ++n)
    batcher.add(tier_change_kind::stored, event_medium::CPU, {}, key_of(n));
  std::uint64_t next = 0;
  const auto payloads = batcher.take(0);
  BOOST_TEST(payloads.size() > 9U);
  for (const std::string& each : payloads) {
    const auto batch = decoded(each);
    BOOST_TEST(batch.hashes.size() <= event_batcher::most_hashes);
    for (const std::uint64_t hash : batch.leading_hashes) BOOST_REQUIRE(__builtin_bswap64(hash) == next++);
  }
  BOOST_TEST(next == 2 * count);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::publishing::event_batcher_test
