// Commits a second: 64 sessions that do not wait for them, beside a store alone on one thread and a round trip a call.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "commands/bench/ping_pong.hpp"
#include "commands/bench/support.hpp"
#include "memory/instance_memory.hpp"
#include "tiers/blocks/slab.hpp"
#include "tiers/blocks/store.hpp"

namespace cenote::bench::commits_bench {

namespace {

constexpr std::uint64_t block_bytes = 4 * KiB;
constexpr std::uint64_t capacity = 512 * MiB;
constexpr std::size_t session_count = 64;
constexpr std::size_t blocks_a_call = 64;
constexpr std::size_t calls = 50;  // of each session a round
constexpr unsigned default_rounds = 20;
constexpr unsigned warm_rounds = 4;  // both tiers are full then, and each session has seen most blocks
constexpr double commits_a_round = static_cast<double>(session_count * calls * blocks_a_call);
constexpr bound fifth_of_the_limit{bound::kind::ratio_at_least, 0.2};

/// A store with one session and no process around it: the cost of a commit without a wake-up.
class store_alone {
 public:
  static result<std::unique_ptr<store_alone>> open() {
    auto records = memory::record_table::create();
    if (!records) return std::unexpected(records.error());
    auto shared = memory::instance_memory::create("bench");
    if (!shared) return std::unexpected(shared.error());
    auto session = memory::segment::create("bench-session", memory::session_memory::segment_bytes(pins));
    if (!session) return std::unexpected(session.error());
    blocks::store_options options;
    options.capacity = capacity;
    std::unique_ptr<store_alone> made(new store_alone(options, std::move(*records), std::move(*session)));
    auto added = made->store_.add_instance(1, spec_of("alone", block_bytes), std::move(shared->index),
                                           std::move(shared->versions));
    if (added) added = made->store_.add_session(1, 1, made->memory_);
    if (!added) return std::unexpected(added.error());
    return made;
  }

  /// Commits `count` unwritten blocks, in batches as a session sends them.
  result<void> commit(std::size_t count) {
    for (std::size_t done = 0; done < count; done += blocks_a_call) {
      blocks::batch work{.session = 1, .entries = {}, .completions = {}};
      work.entries.reserve(blocks_a_call);
      const key_list keys(7, next_key_, blocks_a_call);
      next_key_ += blocks_a_call;
      for (std::size_t slot = 0; slot < memory::session_memory::grants && work.entries.size() < blocks_a_call; ++slot) {
        take(slot, keys, work);
      }
      if (work.entries.empty()) {
        work.entries.push_back({.op = memory::operation::grant, .argument = blocks_a_call});
        next_key_ -= blocks_a_call;
        done -= blocks_a_call;
      } else {
        work.entries.back().want = blocks_a_call;
      }
      work.entries.back().flags = memory::submission::flag_last;
      if (auto ran = run(work); !ran) return ran;
    }
    return {};
  }

 private:
  static constexpr std::uint32_t pins = 64;

  store_alone(const blocks::store_options& options, memory::record_table records, memory::segment session)
      : store_(options, std::move(records)),
        session_(std::move(session)),
        memory_(memory::session_memory::create(session_, 1, pins)) {}

  void take(std::size_t slot, const key_list& keys, blocks::batch& work) {
    auto& grant = memory_.grant(slot);
    const std::uint64_t word = grant.word.load(std::memory_order_relaxed);
    if (memory::grant_slot::state_of(word) != memory::grant_slot::granted) return;
    memory::submission& entry = work.entries.emplace_back();
    entry.op = memory::operation::commit;
    entry.block = grant.block.load(std::memory_order_relaxed);
    entry.grant_version = memory::grant_slot::version_of(word);
    const auto key = keys.all()[work.entries.size() - 1];
    entry.key_size = static_cast<std::uint8_t>(key.size());
    std::ranges::copy(key, entry.key);
  }

  result<void> run(blocks::batch& work) {
    while (store_.run(work, boot_time_of(++now_ / 1024)) == blocks::progress::waits_for_memory) {
      for (auto& request : store_.take_requests()) {
        auto memory = blocks::make_slab_memory(request.slab, false, -1);
        if (!memory) return std::unexpected(memory.error());
        store_.add_slab(request.slab, std::move(*memory));
      }
    }
    while (store_.evict_ahead(boot_time_of(now_ / 1024))) {
    }
    return {};
  }

  blocks::store store_;
  memory::segment session_;
  memory::session_memory memory_;
  std::uint64_t next_key_ = 0;
  std::uint32_t now_ = 0;
};

/// 64 sessions, each with a thread, that start a round together.
class committers {
 public:
  result<void> attach(const stage& where) {
    for (std::size_t i = 0; i < session_count; ++i) {
      auto session = where.attach("commits", block_bytes);
      if (!session) return std::unexpected(session.error());
      sessions_.push_back(std::move(*session));
    }
    return {};
  }

  /// The seconds that a round took, with the answers to all that was handed in.
  result<double> run_round() {
    std::atomic<bool> failed{false};
    std::optional<error> why;
    std::barrier start(session_count + 1);
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < session_count; ++i) {
      threads.emplace_back([&, i] {
        const key_list keys(8 + i, next_key_, calls * blocks_a_call);
        start.arrive_and_wait();
        auto done = commit_all(*sessions_[i], keys);
        if (!done && !failed.exchange(true)) why = done.error();
      });
    }
    start.arrive_and_wait();
    const stopwatch time;
    threads.clear();
    const double took = time.seconds();
    next_key_ += calls * blocks_a_call;
    if (why) return std::unexpected(*why);
    return took;
  }

  result<void> clear() { return sessions_.front()->clear(); }

 private:
  result<void> commit_all(client::session& session, const key_list& keys) {
    for (std::size_t call = 0; call < calls; ++call) {
      const auto some = keys.some(call * blocks_a_call, blocks_a_call);
      if (auto put = session.put_async(some, 0, std::nullopt, sources_.some(0, blocks_a_call)); !put.status) {
        return put.status;
      }
    }
    const auto flushed = session.flush();
    return flushed ? check_all(*flushed, calls * blocks_a_call) : std::unexpected(flushed.error());
  }

  std::vector<client::session_ptr> sessions_;
  memory_pieces sources_{blocks_a_call, block_bytes};
  std::uint64_t next_key_ = 0;
};

/// The cost of each call where nothing else is done: the other process is woken, and wakes this one.
result<double> time_round_trips(ping_pong& other) {
  const one_processor pinned;
  const stopwatch time;
  for (std::size_t i = 0; i < session_count * calls; ++i) {
    if (auto answered = other.call(); !answered) return std::unexpected(answered.error());
  }
  return time.seconds();
}

result<ping_pong> start_ping_pong() {
  const one_processor pinned;
  return ping_pong::start();
}

}  // namespace

result<void> run(const options& options, report& out) {
  auto other = start_ping_pong();
  if (!other) return std::unexpected(other.error());
  auto alone = store_alone::open();
  if (!alone) return std::unexpected(alone.error());
  auto where = stage::open(options, capacity);
  if (!where) return std::unexpected(where.error());
  committers all;
  if (auto attached = all.attach(*where); !attached) return attached;
  samples figure;
  samples limit;
  samples store;
  const unsigned rounds = options.rounds != 0 ? options.rounds : default_rounds;
  for (unsigned round = 0; round < rounds + warm_rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    auto took = all.run_round();
    if (!took) return std::unexpected(took.error());
    const stopwatch time;
    if (auto committed = (*alone)->commit(static_cast<std::size_t>(commits_a_round)); !committed) return committed;
    if (round < warm_rounds) {
      wait_until_settled();
      continue;
    }
    figure.add(*took);
    store.add(time.seconds());
    const auto trips = time_round_trips(*other);
    if (!trips) return std::unexpected(trips.error());
    limit.add(store.last() + *trips);
  }
  out.add(rate_figure("commits", fmt::format("{} sessions x {} x 4 KiB", session_count, blocks_a_call), figure, limit,
                      commits_a_round / 1e3, "thousand/s", fifth_of_the_limit));
  out.add(rate_figure("commits", "the store alone, one thread", store, {}, commits_a_round / 1e3, "thousand/s"));
  return all.clear();
}

}  // namespace cenote::bench::commits_bench
