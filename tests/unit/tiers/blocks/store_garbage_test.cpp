// Submissions that no honest client makes: whatever their fields say, the store stays whole.
#include <boost/test/unit_test.hpp>
#include <cstring>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_garbage_test {

using namespace testing;
using memory::block_ref;
using memory::grant_slot;
using memory::index_value;
using memory::operation;
using memory::submission;

namespace {

constexpr std::uint64_t block = 4096;
constexpr std::uint64_t slab = 16 * block;

instance_spec two_groups(const std::string& id) {
  auto spec = spec_of(id, block, 2);
  spec.groups.push_back({"second", {{"all", block}}});
  return spec;
}

/// Makes entries whose fields are right, wrong, or of something else, about a third of the time each.
class liar {
 public:
  liar(node& node, std::uint64_t seed) : at_(node), random_(seed) {}

  batch batch_of(session_number session, instance_number instance) {
    batch work;
    work.session = session;
    const std::size_t count = 1 + random_() % 12;
    std::uint32_t request = static_cast<std::uint32_t>(random_() % 3);
    for (std::size_t i = 0; i < count; ++i) {
      if (random_() % 4 == 0) ++request;
      work.entries.push_back(entry(session, instance, request, static_cast<std::uint32_t>(i)));
    }
    work.entries.back().flags |= submission::flag_last;
    return work;
  }
  std::uint64_t dice() { return random_(); }

 private:
  submission entry(session_number session, instance_number instance, std::uint32_t request, std::uint32_t place) {
    submission out;
    const bool touches = random_() % 3 == 0;
    out.op =
        touches ? (random_() % 3 == 0 ? operation::asked : operation::touch) : static_cast<operation>(random_() % 17);
    if (out.op == operation::clear && random_() % 16 != 0) out.op = operation::touch;
    out.flags = static_cast<std::uint8_t>(random_() % 4 == 0 ? random_() : random_() % 2);
    out.group = static_cast<std::uint16_t>(random_() % 8 == 0 ? random_() : random_() % 2);
    out.request = request;
    out.index = random_() % 4 == 0 ? static_cast<std::uint32_t>(random_() % 3) : place;
    const auto [ref, version] = block_of(session, instance);
    out.block = ref;
    out.grant_version = random_() % 6 == 0 ? static_cast<std::uint32_t>(random_()) : version;
    out.argument = random_() % 3 == 0 ? random_() : random_() % 4;
    out.want = random_() % 3 == 0 ? random_() : random_() % 4;
    out.parent = random_() % 2 == 0 ? random_() : reduce_key(key_of(random_() % keys).view(), 0).lo;
    const full_key key = key_of(random_() % keys);
    std::memcpy(out.key, key.bytes.data(), sizeof out.key);
    out.key_size = static_cast<std::uint8_t>(random_() % 8 == 0 ? random_() : key.size);
    if (out.op == operation::touch) fill_runs(out, instance);
    return out;
  }

  void fill_runs(submission& out, instance_number instance) {
    memory::touch_runs runs{};
    for (std::uint64_t& run : runs.run) {
      const std::uint64_t length = random_() % 8 == 0 ? random_() & 0xffffff : random_() % 4;
      run = memory::touch_runs::make(block_ref::from_bits(block_of(0, instance).first), length);
    }
    std::memcpy(out.key, &runs, sizeof runs);
    out.key_size = static_cast<std::uint8_t>(random_() % 8 == 0 ? random_() : 8 * (1 + random_() % 8));
  }

  /// A block of a slab of the instance and its grant version; sometimes one that the session holds, or of nowhere.
  std::pair<std::uint64_t, std::uint32_t> block_of(session_number session, instance_number instance) {
    if (session != 0 && random_() % 3 == 0) {
      const auto& slot = at_.session(session).grant(random_() % 16);
      const std::uint64_t word = slot.word.load();
      if (grant_slot::state_of(word) != grant_slot::empty) return {slot.block.load(), grant_slot::version_of(word)};
    }
    if (random_() % 16 == 0) return {random_(), 1};
    const std::uint32_t index = 1 + static_cast<std::uint32_t>(random_() % 24);
    const slab_description* home = at_.slab(instance, index);
    if (home == nullptr) return {block_ref(index, 0).bits, 1};
    const block_ref ref(index, static_cast<std::uint32_t>(random_() % home->count));
    return {ref.bits, at_.record(instance, ref).grant_version.load()};
  }

  static constexpr std::uint64_t keys = 200;
  node& at_;
  std::mt19937_64 random_;
};

void lie_to(const std::string& policy, std::uint64_t seed) {
  auto options = options_of(12 * (slab + 4096), slab);
  options.policy = policy;
  options.reserve_timeout = tenths(20);
  options.groups = {{"one", {.quota = 100 * block}}};
  node at(options);
  const std::array instances{at.add(two_groups("one")), at.add(two_groups("two"))};
  std::vector<std::unique_ptr<client>> clients;
  for (const instance_number in : {instances[0], instances[0], instances[1]}) {
    clients.push_back(std::make_unique<client>(at, in));
  }
  liar lies(at, seed);
  for (int step = 0; step < 1500; ++step) {
    client& by = *clients[lies.dice() % clients.size()];
    at.run(lies.batch_of(by.number, by.in));
    at.now += tenths(lies.dice() % 2);
    if (step % 7 == 0) at.tier->tick(at.now);
    if (step % 5 == 0) at.tier->evict_ahead(at.now);
    for (const auto& each : clients) static_cast<void>(each->put(key_of(lies.dice() % 200)));
    if (lies.dice() % 200 == 0) at.restart();
    if (lies.dice() % 100 == 0) at.tier->disconnect_session(by.number, at.now);
    if (step % 50 == 0) BOOST_REQUIRE(at.broken_identity() == "");
  }
  BOOST_TEST(at.broken_identity() == "");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(store_garbage)

BOOST_AUTO_TEST_CASE(batches_that_make_no_sense_leave_the_store_whole_under_every_policy) {
  std::uint64_t seed = 1;
  for (const char* policy : {"lru", "tblru", "arc", "s3fifo", "mq", "auto"}) {
    BOOST_TEST_CONTEXT(policy) lie_to(policy, seed++);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_garbage_test
