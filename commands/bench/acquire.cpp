// The zero-copy read: what pinning costs a block, whatever the block's size.
#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "commands/bench/lines.hpp"
#include "commands/bench/plain_loops.hpp"
#include "commands/bench/support.hpp"

namespace cenote::bench::acquire_bench {

namespace {

constexpr std::uint64_t block_bytes = 64 * KiB;
constexpr std::size_t blocks = 16'000;
constexpr std::size_t chains_timed = 400;
constexpr unsigned default_rounds = 20;
constexpr double microseconds = 1e6;
constexpr bound no_dearer{bound::kind::ratio_at_most, 1};  // than a hash table

/// The limit: a table in this process that counts the holders of each key.
result<void> measure(client::session& session, const lookup_memory& where, const key_list& keys, std::size_t length,
                     counted_keys& table, const options& options, report& out) {
  const auto chains = pick_chains(where, keys, chains_timed, length);
  if (!chains) return std::unexpected(chains.error());
  std::vector<client::held_block> held(length);
  const auto read = [&](const chain& prompt) -> result<void> {
    const auto n = session.acquire(prompt.keys, 0, held);
    if (!n) return std::unexpected(n.error());
    if (auto released = session.release(std::span<const client::held_block>(held).first(*n)); !released)
      return released;
    return check_all(*n, length);
  };
  std::vector<std::atomic<std::uint32_t>*> counted(length);
  const auto count = [&](const chain& prompt) -> result<void> {
    const std::size_t n = table.hold(prompt.keys, counted);
    counted_keys::release(std::span(counted).first(n));
    return check_all(n, length);
  };
  samples figure;
  samples limit;
  const unsigned rounds = options.rounds != 0 ? options.rounds : default_rounds;
  if (auto timed = time_in_turn(*chains, rounds, read, count, figure, limit); !timed) return timed;
  // The promise is for a prompt's worth of blocks; one block alone pays for the call.
  out.add(time_figure("acquire", fmt::format("{} blocks at once", length), figure, limit,
                      microseconds / static_cast<double>(length), "us/block", length >= 64 ? no_dearer : bound{}));
  return {};
}

}  // namespace

result<void> run(const options& options, report& out) {
  auto where = stage::open(options, blocks * block_bytes / 8 * 9, {"dram.populate=false"});
  if (!where) return std::unexpected(where.error());
  auto session = where->attach("acquire", block_bytes);
  if (!session) return std::unexpected(session.error());
  const key_list keys(3, 0, blocks);
  if (auto made = commit_unwritten(**session, keys.all()); !made) return made;
  wait_until_settled();
  auto view = lookup_view::open(where->socket(), (*session)->spec());
  if (!view) return std::unexpected(view.error());
  counted_keys table(keys.all());
  for (const std::size_t length : {std::size_t{1000}, std::size_t{64}, std::size_t{1}}) {
    if (auto ok = measure(**session, view->memory(), keys, length, table, options, out); !ok) return ok;
  }
  const auto stats = (*session)->stats();
  if (!stats) return std::unexpected(stats.error());
  out.add({.bench = "acquire",
           .name = "bytes copied",
           .value = static_cast<double>(stats->bytes_copied_out),
           .unit = "bytes",
           .promise = {bound::kind::value_at_most, 0}});
  return options.socket.empty() ? result<void>() : (*session)->clear();
}

}  // namespace cenote::bench::acquire_bench
