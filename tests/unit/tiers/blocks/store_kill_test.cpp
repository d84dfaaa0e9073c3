// The worker is killed at random moments; the next one takes over its segments.
#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "tests/unit/tiers/blocks/killed_worker.hpp"
#include "tests/unit/tiers/blocks/random_work.hpp"

namespace cenote::blocks {

using namespace testing;
using memory::operation;
using memory::submission;

namespace {

int rounds() {
  return std::getenv("CENOTE_TEST_FULL") == nullptr ? 60 : 1200;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(store_kill)

BOOST_AUTO_TEST_CASE(what_was_stored_is_there_after_every_kill) {
  auto options = options_of(128 << 20, 1 << 20);
  options.high_water = 1.0;
  node at(options);
  const instance_number in = at.add(spec_of("one"));
  client writer(at, in);
  client watcher(at, in, 32);
  at.tier->evict_ahead(at.now);
  BOOST_REQUIRE(!at.slabs.empty());
  killed_worker worker(at, at.slabs.begin()->second.what, 8);
  std::mt19937_64 random(3);
  std::uint64_t first = 0;  // keys before this one were cleared
  int replays = 0;
  for (int round = 0; round < rounds(); ++round) {
    worker.run(static_cast<unsigned>(random() % 3000), [&](legacy& log) -> std::string {
      const std::uint64_t base = log.stored;
      std::vector<full_key> keys;
      for (std::uint64_t k = base; k < base + 16; ++k) keys.push_back(key_of(k));
      keys.push_back(key_of(base + 3));                                         // twice in the batch
      if (base > first) keys.push_back(key_of(first + base % (base - first)));  // there already
      const auto answer = writer.put(keys);
      if (answer.code != 0) return "a put was refused with " + std::to_string(answer.code);
      log.stored = base + 16;
      return watcher.read(key_of(base)) == look::right ? "" : "a stored key is not there";
    });
    const std::uint64_t stored = worker.log().stored;
    for (std::uint64_t k = first; k < stored + 16; k += 7) BOOST_REQUIRE((watcher.read(key_of(k)) != look::wrong));
    at.recover();
    if (const auto broken = at.broken_identity(); !broken.empty()) BOOST_FAIL("round " << round << ": " << broken);
    for (std::uint64_t k = first; k < stored; ++k) {
      if (watcher.read(key_of(k)) != look::right) BOOST_FAIL("round " << round << ": key " << k << " is not right");
    }
    BOOST_REQUIRE((watcher.read(key_of(stored + 15)) != look::wrong));
    memory::completion answer;
    if (worker.replay(answer)) {
      ++replays;
      const submission& entry = worker.log().entries[0];
      BOOST_REQUIRE(answer.code == 0);
      if (entry.op == operation::commit) {
        BOOST_REQUIRE(answer.value == 16U);
        for (std::uint64_t k = stored; k < stored + 16; ++k) BOOST_REQUIRE((watcher.read(key_of(k)) == look::right));
        worker.log().stored = stored + 16;
      }
    } else if (watcher.read(key_of(stored + 15)) == look::right) {
      worker.log().stored = stored + 16;  // killed after its batch, before it wrote so down
    }
    if (const auto broken = at.broken_identity(); !broken.empty()) BOOST_FAIL("after the replay: " << broken);
    for (std::uint32_t slot = 0; slot < 32; ++slot) watcher.unpin(slot);  // it read in the dead process
    for (auto got = writer.take(); got; got = writer.take()) writer.ask({writer.entry_of(operation::release, *got)});
    const auto memory = at.session(writer.number);
    for (std::size_t i = 0; i < memory::session_memory::grants; ++i) {
      const std::uint64_t word = memory.grant(i).word.load();
      if (memory::grant_slot::state_of(word) != memory::grant_slot::taken) continue;
      writer.ask({writer.entry_of(operation::release, blank{memory::block_ref::from_bits(memory.grant(i).block.load()),
                                                            memory::grant_slot::version_of(word)})});
    }
    BOOST_REQUIRE(at.status().granted == 0U);
    if (at.present(in) > 20'000) {
      at.tier->clear_all(at.now);
      first = worker.log().stored;
    }
  }
  BOOST_TEST_MESSAGE(rounds() << " kills, " << worker.log().stored << " keys stored, " << replays
                              << " batches repeated");
  BOOST_TEST(worker.log().stored > 1000U);
}

BOOST_AUTO_TEST_CASE(no_wrong_byte_is_read_after_kills_under_pressure) {
  constexpr std::uint64_t slab_bytes = 16 * 8192;
  auto options = options_of(8 * (slab_bytes + 4096), slab_bytes);
  options.groups = {{"team", {.quota = 90 * 8192}}};
  options.reserve_timeout = tenths(50);
  node at(options);
  random_work work(at, 5, 300);
  work.may_drop_sessions = false;
  const auto a = at.add(spec_of("a", 8192, 2, "team"));
  const auto b = at.add(spec_of("b", 8192, 1, "team"));
  const auto c = at.add(spec_of("c", 8192, 1));
  for (const instance_number in : {a, a, b, c}) work.add_client(in);
  client watcher(at, a, 32);
  killed_worker worker(at, at.slabs.begin()->second.what, legacy::most_slabs);
  std::mt19937_64 random(9);
  std::uint64_t served = 0;
  for (int round = 0; round < rounds(); ++round) {
    std::vector<std::pair<std::uint32_t, full_key>> watched;  // reads under way while the worker dies
    for (std::uint64_t n = 0; n < 300 && watched.size() < 8; ++n) {
      const full_key key = key_of(n, 8 + n % 57);
      if (const auto slot = watcher.pin(key)) watched.emplace_back(*slot, key);
    }
    work.reseed(random());
    worker.run(static_cast<unsigned>(random() % 4000), [&](legacy&) { return work.step(); });
    const auto still_right = [&] {
      for (const auto& [slot, key] : watched) BOOST_REQUIRE(holds(watcher.pinned_bytes(slot), 8192, key));
    };
    still_right();
    BOOST_REQUIRE(work.read_all() >= 0);  // readers do not wait for the next worker
    served += at.recover();
    still_right();
    work.unpin_all();
    BOOST_REQUIRE(work.read_all() >= 0);
    if (const auto broken = at.broken_identity(); !broken.empty()) BOOST_FAIL("round " << round << ": " << broken);
    memory::completion answer;
    worker.replay(answer);
    if (const auto wrong = work.after_restart(); !wrong.empty()) BOOST_FAIL("round " << round << ": " << wrong);
    for (int step = 0; step < 50; ++step) {
      if (const auto wrong = work.step(); !wrong.empty()) BOOST_FAIL("round " << round << ": " << wrong);
    }
    still_right();
    if (const auto broken = at.broken_identity(); !broken.empty())
      BOOST_FAIL("round " << round << " later: " << broken);
    if (const auto wrong = work.after_restart(); !wrong.empty()) BOOST_FAIL("round " << round << ": " << wrong);
    work.unpin_all();  // the next process would have them too
    for (const auto& [slot, key] : watched) watcher.unpin(slot);
  }
  BOOST_TEST_MESSAGE(rounds() << " kills, " << served << " blocks served again");
  BOOST_TEST(served > 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks
