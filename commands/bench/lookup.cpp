// A chain's lookup: against a node whose index holds a million blocks, or in memory alone for other sizes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "commands/bench/lines.hpp"
#include "commands/bench/support.hpp"
#include "memory/index.hpp"
#include "memory/instance_memory.hpp"
#include "memory/lookup.hpp"
#include "memory/pin_slots.hpp"
#include "memory/session_memory.hpp"
#include "memory/version_table.hpp"

namespace cenote::bench::lookup_bench {

namespace {

constexpr std::size_t chain_keys = 1000;
constexpr std::size_t chains_timed = 400;
constexpr unsigned default_rounds = 20;
constexpr std::uint64_t node_blocks = 1'000'000;
constexpr std::uint64_t block_bytes = 4 * KiB;
constexpr std::uint64_t smallest_index = chain_keys;
constexpr std::uint64_t largest_index = 100'000'000;
constexpr double microseconds = 1e6;
constexpr std::uint64_t first_version = 2;
constexpr bound at_most_three{bound::kind::ratio_at_most, 3};

std::string count_text(std::uint64_t n) {
  if (n % 1'000'000 == 0) return fmt::format("{} M", n / 1'000'000);
  if (n % 1'000 == 0) return fmt::format("{} K", n / 1'000);
  return std::to_string(n);
}

/// `bench` has a name of its own for indexes alone: figures of a run replace those of the same bench.
template <class Use>
result<void> measure(std::string bench, std::string name, std::span<const chain> chains, const options& options,
                     report& out, bound promise, Use&& use) {
  samples figure;
  samples limit;
  const unsigned rounds = options.rounds != 0 ? options.rounds : default_rounds;
  if (auto timed = time_against_lines(chains, rounds, std::forward<Use>(use), figure, limit); !timed) return timed;
  out.add(time_figure(std::move(bench), std::move(name), figure, limit, microseconds, "us", promise));
  return {};
}

// ---------------------------------------------------------------------------------------------- with a node

/// Pins and unpins a chain through the client library.
class pinning_reader {
 public:
  explicit pinning_reader(client::session& session) : session_(&session), held_(chain_keys) {}

  result<void> operator()(const chain& which) {
    const auto held = session_->acquire(which.keys, 0, held_);
    if (!held) return std::unexpected(held.error());
    if (auto released = session_->release(std::span<const client::held_block>(held_).first(*held)); !released)
      return released;
    return check_all(*held, which.keys.count);
  }

 private:
  client::session* session_;
  std::vector<client::held_block> held_;
};

result<void> run_with_node(const options& options, report& out) {
  // Nothing is written into the blocks, so the slabs take no memory.
  const std::uint64_t capacity = node_blocks * block_bytes / 8 * 9;
  auto where = stage::open(options, capacity, {"dram.populate=false"});
  if (!where) return std::unexpected(where.error());
  auto session = where->attach("lookup", block_bytes);
  if (!session) return std::unexpected(session.error());
  const key_list keys(1, 0, node_blocks);
  if (auto made = commit_unwritten(**session, keys.all()); !made) return made;
  wait_until_settled();
  auto view = lookup_view::open(where->socket(), (*session)->spec());
  if (!view) return std::unexpected(view.error());
  const auto chains = pick_chains(view->memory(), keys, chains_timed, chain_keys);
  if (!chains) return std::unexpected(chains.error());

  const auto title = fmt::format("{} keys of {}", chain_keys, count_text(node_blocks));
  if (auto ok = measure("lookup", title + ", pinned", *chains, options, out, at_most_three, pinning_reader(**session));
      !ok)
    return ok;
  auto ok = measure("lookup", title + ", match", *chains, options, out, {}, [&](const chain& which) -> result<void> {
    const auto found = (*session)->match_prefix(which.keys, 0);
    if (!found) return std::unexpected(found.error());
    return check_all(found->resident, which.keys.count);
  });
  if (!ok) return ok;
  std::vector<std::uint8_t> present(chain_keys);
  ok = measure("lookup", title + ", exists", *chains, options, out, {}, [&](const chain& which) -> result<void> {
    if (auto asked = (*session)->exists(which.keys, 0, present); !asked) return asked;
    return check_all(static_cast<std::size_t>(std::ranges::count(present, std::uint8_t{1})), which.keys.count);
  });
  if (!ok) return ok;
  return options.socket.empty() ? result<void>() : (*session)->clear();
}

// ---------------------------------------------------------------------------------------------- in memory alone

/// Index, version table and session memory of one instance, as a node would have made them; no slabs.
class bare_instance {
 public:
  static result<bare_instance> make(const key_list& keys) {
    auto shared = memory::instance_memory::create("bench");
    if (!shared) return std::unexpected(shared.error());
    auto session = memory::segment::create("cenote-bench-session", memory::session_memory::segment_bytes(chain_keys));
    if (!session) return std::unexpected(session.error());
    bare_instance made(std::move(*shared), std::move(*session));
    if (auto filled = made.fill(keys); !filled) return std::unexpected(filled.error());
    return made;
  }

  [[nodiscard]] lookup_memory memory() const noexcept { return {shared_.index.memory(), shared_.versions}; }
  [[nodiscard]] memory::index_reader reader() const noexcept { return shared_.index.reader(); }
  [[nodiscard]] const memory::version_table& table() const noexcept { return shared_.versions; }
  [[nodiscard]] memory::session_memory session() const noexcept { return session_; }

 private:
  bare_instance(memory::instance_memory shared, memory::segment session)
      : shared_(std::move(shared)),
        session_segment_(std::move(session)),
        session_(memory::session_memory::create(session_segment_, 1, chain_keys)) {}

  result<void> fill(const key_list& keys) {
    constexpr std::uint32_t slab_blocks = memory::block_ref::max_blocks_per_slab;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto version_index = static_cast<std::uint32_t>(i);
      const std::uint32_t slab = version_index / slab_blocks + 1;
      if (version_index % slab_blocks == 0) {
        if (auto room = table().make_room(slab, version_index, slab_blocks); !room) return room;
        auto& entry = *table().slab(slab);
        entry.first_version = version_index;
        entry.count = slab_blocks;
        entry.stride = block_bytes;
        entry.state.store(static_cast<std::uint32_t>(memory::slab_state::live), std::memory_order_release);
      }
      const auto key = keys.some(i, 1)[0];
      table().set_key(version_index, full_key(key));
      table().set_version(version_index, first_version);
      const auto value = memory::index_value::make({slab, version_index % slab_blocks}, first_version);
      if (auto added = shared_.index.insert(reduce_key(key, 0), value); !added) return added;
    }
    shared_.index.migrate(shared_.index.slots());  // a node at rest ends a growth, too
    return {};
  }

  memory::instance_memory shared_;
  memory::segment session_segment_;
  memory::session_memory session_;
};

result<void> run_in_memory(std::uint64_t blocks, const options& options, report& out) {
  const key_list keys(2, 0, blocks);
  const auto instance = bare_instance::make(keys);
  if (!instance) return std::unexpected(instance.error());
  const auto chains = pick_chains(instance->memory(), keys, chains_timed, chain_keys);
  if (!chains) return std::unexpected(chains.error());
  memory::pin_slots slots(chain_keys);
  const memory::lookup lookup(instance->reader(), instance->table(), instance->session(), slots);
  std::vector<memory::pin> pins(chain_keys);

  const auto title = fmt::format("{} keys of {}, no node", chain_keys, count_text(blocks));
  const bound promise = blocks >= node_blocks ? at_most_three : bound{};  // fewer lie in the processor's caches
  auto ok =
      measure("sizes", title + ", pinned", *chains, options, out, promise, [&](const chain& which) -> result<void> {
        const auto held = lookup.pin_prefix(which.keys, 0, pins);
        if (!held) return std::unexpected(held.error());
        lookup.unpin(std::span(pins).first(*held));
        return check_all(*held, which.keys.count);
      });
  if (!ok) return ok;
  return measure("sizes", title + ", match", *chains, options, out, {},
                 [&](const chain& which) { return check_all(lookup.count_prefix(which.keys, 0), which.keys.count); });
}

}  // namespace

result<void> run(const options& options, report& out) {
  if (options.blocks.empty()) return run_with_node(options, out);
  for (const std::uint64_t blocks : options.blocks) {
    if (blocks < smallest_index || blocks > largest_index) {
      return fail(error_code::invalid_argument,
                  fmt::format("{} blocks; an index to measure has {} to {}", blocks, smallest_index, largest_index));
    }
    if (auto ok = run_in_memory(blocks, options, out); !ok) return ok;
  }
  return {};
}

}  // namespace cenote::bench::lookup_bench
