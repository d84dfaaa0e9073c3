// Work whose instructions tests/python/test_instructions.py counts: counted_work NAME prints how many operations it did
// within counted_section(), which a tool counts alone. One thread, the same on every run.
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/unit/client/session_fixture.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

/// The work that is counted. The tool is given this name.
extern "C" [[gnu::noipa]] void counted_section(const std::function<void()>& work) {
  work();
}

namespace cenote::counted_work {

namespace {

constexpr std::size_t batch_blocks = 64;
constexpr std::size_t rounds = 100;

/// Keys looked up: a prefix that is present, without pins.
std::size_t look_up() {
  testing::session_fixture at(256, 256);
  const auto keys = testing::keys_of(0, 128);
  auto bytes = testing::content(0, 128);
  testing::must(at.session->put(testing::batch_of(keys), 0, std::nullopt, testing::run_of(bytes, 128)).status);
  counted_section([&] {
    for (std::size_t round = 0; round < rounds; ++round) {
      static_cast<void>(at.session->match_prefix(testing::batch_of(keys), 0));
    }
  });
  return rounds * 128;
}

/// Blocks pinned for reading, and let go.
std::size_t pin() {
  testing::session_fixture at(256, 256);
  const auto keys = testing::keys_of(0, 128);
  auto bytes = testing::content(0, 128);
  testing::must(at.session->put(testing::batch_of(keys), 0, std::nullopt, testing::run_of(bytes, 128)).status);
  std::vector<client::held_block> held(128);
  counted_section([&] {
    for (std::size_t round = 0; round < rounds; ++round) {
      static_cast<void>(at.session->acquire(testing::batch_of(keys), 0, held));
      static_cast<void>(at.session->release(held));
    }
  });
  return rounds * 128;
}

/// Blocks of 4 KiB copied and handed in, without the node's part: it has granted blanks and reads no ring.
std::size_t put() {
  constexpr std::size_t blocks = 1024;
  testing::session_fixture at(2 * blocks, 256);
  const auto keys = testing::keys_of(0, blocks);
  auto bytes = testing::content(0, batch_blocks);
  const auto batch_at = [&](std::size_t first) { return key_batch{keys.data() + first * 32, batch_blocks, 32}; };
  const auto source = testing::run_of(bytes, batch_blocks);
  testing::must(at.session->put(batch_at(0), 0, std::nullopt, source).status);  // it maps the slab
  at.node.stand_still(true);
  for (std::uint32_t slot = 0; slot < blocks; ++slot) {
    auto& place = at.owner.session().grant(slot);
    place.block.store(testing::local_owner::ref(blocks + slot).bits);
    place.word.store(memory::grant_slot::make(100'000 + slot, 0, memory::grant_slot::granted));
  }
  counted_section([&] {
    for (std::size_t first = batch_blocks; first < blocks; first += batch_blocks) {
      testing::must(at.session->put_async(batch_at(first), 0, std::nullopt, source).status);
    }
  });
  at.node.stand_still(false);
  return blocks - batch_blocks;
}

/// A store under pressure and one session of it.
struct full_store {
  full_store() : fixture(with_auto()), user(fixture, fixture.add(blocks::testing::spec_of("one"))) {}

  static blocks::store_options with_auto() {
    auto options = blocks::testing::options_of(std::uint64_t{32} << 20, std::uint64_t{4} << 20);
    options.policy = "auto";
    return options;
  }
  blocks::batch batch_of(std::vector<memory::submission> entries) const {
    for (std::uint32_t i = 0; i < entries.size(); ++i) entries[i].index = i;
    entries.back().flags |= memory::submission::flag_last;
    blocks::batch work;
    work.session = user.number;
    work.entries = std::move(entries);
    return work;
  }
  blocks::batch commits(std::uint64_t first) {
    std::vector<memory::submission> entries;
    for (std::size_t each = 0; each < batch_blocks; ++each) {
      const auto blank = user.obtain();
      if (!blank) std::abort();
      entries.push_back(user.commit_of(*blank, blocks::testing::key_of(first + each, 32)));
    }
    return batch_of(std::move(entries));
  }
  void run(blocks::batch& work) {
    while (fixture.tier->run(work, fixture.now) == blocks::progress::waits_for_memory) fixture.pump();
  }

  blocks::testing::node fixture;
  blocks::testing::client user;
};

/// Blocks committed, as the store carries it out, half of them after the tier is full.
std::size_t commit() {
  full_store store;
  for (std::size_t round = 0; round < 2 * rounds; ++round) {
    blocks::batch work = store.commits(round * batch_blocks);
    counted_section([&] { store.run(work); });
  }
  return 2 * rounds * batch_blocks;
}

/// Blocks granted: with each batch of commits the blanks for the next one, evicted where the tier is full.
std::size_t grant() {
  full_store store;
  for (std::size_t round = 0; round < 2 * rounds; ++round) {
    memory::submission entry;
    entry.op = memory::operation::grant;
    entry.argument = batch_blocks;
    blocks::batch asked = store.batch_of({entry});
    counted_section([&] { store.run(asked); });
    blocks::batch work = store.commits(round * batch_blocks);
    store.run(work);
  }
  return 2 * rounds * batch_blocks;
}

/// Blocks touched by requests that find them.
std::size_t touch() {
  full_store store;
  std::vector<full_key> chain;
  for (std::uint64_t key = 0; key < batch_blocks; ++key) chain.push_back(blocks::testing::key_of(key, 32));
  blocks::batch work = store.commits(0);
  store.run(work);
  std::vector<memory::submission> entries;
  for (std::size_t first = 0; first < chain.size(); first += memory::touch_runs::capacity) {
    memory::submission entry;
    entry.op = memory::operation::touch;
    for (std::size_t run = 0; run < memory::touch_runs::capacity; ++run) {
      const auto found = store.fixture.index(store.user.in).find(reduce_key(chain[first + run].view(), 0));
      const std::uint64_t word = memory::touch_runs::make(memory::index_value::ref(found), 1);
      std::memcpy(entry.key + run * sizeof word, &word, sizeof word);
    }
    entry.key_size = static_cast<std::uint8_t>(memory::touch_runs::capacity * sizeof(std::uint64_t));
    entries.push_back(entry);
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    blocks::batch touches = store.batch_of(entries);
    counted_section([&] { store.run(touches); });
  }
  return rounds * batch_blocks;
}

}  // namespace

}  // namespace cenote::counted_work

int main(int argc, char** argv) {
  using namespace cenote::counted_work;
  constexpr std::pair<std::string_view, std::size_t (*)()> all[] = {
      {"lookup", look_up}, {"pin", pin}, {"put", put}, {"commit", commit}, {"grant", grant}, {"touch", touch}};
  for (const auto& [name, work] : all) {
    if (argc == 2 && name == argv[1]) return std::printf("operations %zu\n", work()) < 0 ? 1 : 0;
  }
  std::fprintf(stderr, "counted_work: one of lookup, pin, put, commit, grant, touch\n");
  return 2;
}
