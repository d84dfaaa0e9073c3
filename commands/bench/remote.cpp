// The remote tier's Redis backend against a bare pipelined hiredis loop and redis-benchmark, in turn on the same
// server.
#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "commands/bench/private_server.hpp"
#include "commands/bench/support.hpp"
#include "core/units.hpp"
#include "keeper/child_process.hpp"
#include "tiers/remote/redis_backend.hpp"
#include "transport/redis/server_url.hpp"

namespace cenote::bench::remote_bench {

namespace {

using namespace std::chrono_literals;
using remote::block_name;
using remote::item;
using remote::item_outcome;
using remote::item_result;

constexpr unsigned usual_rounds = 9;
constexpr unsigned locates_a_round = 5;              // each takes a millisecond
constexpr std::chrono::milliseconds patience = 20s;  // for a batch
constexpr std::size_t asked_keys = 1000;
constexpr std::size_t held_keys = asked_keys / 2;
constexpr std::uint64_t small_value = 64;
constexpr std::uint64_t compared_block = 512 * KiB;  // what redis-benchmark is run with

timeval as_timeval(std::chrono::milliseconds time) noexcept {
  return {.tv_sec = time.count() / 1000, .tv_usec = time.count() % 1000 * 1000};
}

// ------------------------------------------------------------------------------------- the bare loop

struct free_context {
  void operator()(redisContext* context) const noexcept { redisFree(context); }
};
struct free_reply {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};
using reply_pointer = std::unique_ptr<redisReply, free_reply>;

/// What hiredis does with nothing around it: all commands of a batch appended, then their replies read.
class bare_side {
 public:
  static result<bare_side> connect(const redis::server_url& url) {
    const auto& address = url.servers.front();
    bare_side made;
    made.context_.reset(address.path.empty() ? redisConnectWithTimeout(address.place.host.c_str(), address.place.port,
                                                                       as_timeval(patience))
                                             : redisConnectUnixWithTimeout(address.path.c_str(), as_timeval(patience)));
    if (!made.context_ || made.context_->err != 0) return made.lost();
    // No reply is waited for without end.
    if (redisSetTimeout(made.context_.get(), as_timeval(patience)) != REDIS_OK) return made.lost();
    made.append({"SELECT", std::to_string(url.database)});
    if (auto chosen = made.take_all(1, REDIS_REPLY_STATUS); !chosen) return std::unexpected(chosen.error());
    return made;
  }

  /// SET … NX of each piece under its key; every one has to be new.
  result<void> put(std::span<const std::string> keys, memory_pieces& pieces, std::uint64_t bytes) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      append({"SET", keys[i], {reinterpret_cast<const char*>(pieces.piece(i)), bytes}, "NX"});
    }
    return take_all(keys.size(), REDIS_REPLY_STATUS);
  }

  result<void> get(std::span<const std::string> keys) {
    for (const auto& key : keys) append({"GET", key});
    return take_all(keys.size(), REDIS_REPLY_STRING);
  }

  result<void> exists(std::span<const std::string> keys) {
    for (const auto& key : keys) append({"EXISTS", key});
    return take_all(keys.size(), REDIS_REPLY_INTEGER);
  }

  result<void> remove(std::span<const std::string> keys) {
    for (const auto& key : keys) append({"DEL", key});
    return take_all(keys.size(), REDIS_REPLY_INTEGER);
  }

 private:
  bare_side() = default;

  void append(std::initializer_list<std::string_view> words) {
    std::array<const char*, 4> data{};
    std::array<std::size_t, 4> sizes{};
    std::size_t n = 0;
    for (const auto word : words) {
      data[n] = word.data();
      sizes[n++] = word.size();
    }
    redisAppendCommandArgv(context_.get(), static_cast<int>(n), data.data(), sizes.data());
  }

  result<void> take_all(std::size_t count, int wanted) {
    for (std::size_t i = 0; i < count; ++i) {
      void* taken = nullptr;
      if (redisGetReply(context_.get(), &taken) != REDIS_OK) return lost();
      const reply_pointer reply(static_cast<redisReply*>(taken));
      if (reply->type == wanted) continue;
      const bool says_why = reply->type == REDIS_REPLY_ERROR;
      return fail(error_code::system, says_why ? fmt::format("the Redis server: {}", reply->str)
                                               : "the Redis server gave another reply than the bare loop wants");
    }
    return {};
  }

  [[nodiscard]] std::unexpected<error> lost() const {
    return fail(error_code::not_running,
                fmt::format("the Redis server: {}", context_ ? context_->errstr : "no memory"));
  }

  std::unique_ptr<redisContext, free_context> context_;
};

// --------------------------------------------------------------------------------------------- ours

/// Waits for what the backend's thread answers. Thread-safe.
class tier_side {
 public:
  static result<std::unique_ptr<tier_side>> open(const redis::server_url& url, const std::string& state) {
    std::unique_ptr<tier_side> made(new tier_side);
    const remote::redis_options options{.url = url, .credentials = {}, .state = state, .timeout = patience};
    const auto note = [side = made.get()](const std::vector<item_outcome>& some) { side->note(some); };
    auto opened = remote::redis_backend::open(
        options, {.put = note, .got = note, .standing = [side = made.get()](result<void> now) {
                    side->change([&] { side->standing_ = std::move(now); });
                  }});
    if (!opened) return std::unexpected(opened.error());
    made->backend_ = std::move(*opened);
    auto stands = made->wait("does not answer", [side = made.get()] { return side->standing_ && *side->standing_; });
    if (!stands) return std::unexpected(stands.error());
    return made;
  }

  result<void> put(std::vector<item> batch) {
    const std::size_t count = batch.size();
    backend_->put(std::move(batch));
    return wait_for(count);
  }

  result<void> get(std::vector<item> batch) {
    const std::size_t count = batch.size();
    backend_->get(std::move(batch));
    return wait_for(count);
  }

  result<remote::presence> locate(std::vector<block_name> names) {
    found_.reset();
    backend_->locate(std::move(names), patience,
                     [this](remote::presence found) { change([&] { found_ = std::move(found); }); });
    if (auto ok = wait("did not answer in time", [this] { return found_.has_value(); }); !ok) {
      return std::unexpected(ok.error());
    }
    return std::move(*found_);
  }

  result<void> drop(instance_identity identity, std::vector<block_key> keys) {
    dropped_.reset();
    backend_->drop(identity, std::move(keys),
                   [this](result<std::uint64_t> count) { change([&] { dropped_ = std::move(count); }); });
    if (auto ok = wait("did not answer in time", [this] { return dropped_.has_value(); }); !ok) return ok;
    return *dropped_ ? result<void>() : std::unexpected(dropped_->error());
  }

 private:
  tier_side() = default;

  template <class Change>
  void change(Change&& what) {
    const std::lock_guard lock(mutex_);
    what();
    changed_.notify_one();
  }

  void note(const std::vector<item_outcome>& some) {
    change([&] {
      done_ += some.size();
      failed_ += static_cast<std::size_t>(
          std::ranges::count_if(some, [](const auto& each) { return each.what != item_result::done; }));
    });
  }

  // Longer than the backend has: it answers everything within its own time.
  template <class Condition>
  result<void> wait(std::string_view otherwise, Condition&& condition) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, 2 * patience, std::forward<Condition>(condition))) return {};
    return fail(error_code::deadline_exceeded, fmt::format("the Redis server {}", otherwise));
  }

  result<void> wait_for(std::size_t count) {
    if (auto ok = wait("did not answer in time", [&] { return done_ >= count; }); !ok) return ok;
    const std::lock_guard lock(mutex_);
    done_ = 0;
    if (failed_ == 0) return {};
    return fail(error_code::no_space,
                fmt::format("{} of {} blocks were refused, lost or wrong; the server needs memory for all of them",
                            std::exchange(failed_, 0), count));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t done_ = 0;
  std::size_t failed_ = 0;
  std::optional<result<void>> standing_;
  std::optional<remote::presence> found_;
  std::optional<result<std::uint64_t>> dropped_;
  std::unique_ptr<remote::redis_backend> backend_;  // last: ends first
};

// ------------------------------------------------------------------------------------------- server

result<void> wait_for_end(child_process& program, std::chrono::milliseconds limit) {
  const stopwatch time;
  while (time.seconds() < std::chrono::duration<double>(limit).count()) {
    pollfd end{.fd = program.pidfd(), .events = POLLIN, .revents = 0};
    ::poll(&end, 1, 100);
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    const auto how = program.ended();
    if (!how) continue;
    if (!how->by_signal && how->value == 0) return {};
    return fail(error_code::system, "it ended with " + how->describe());
  }
  return fail(error_code::deadline_exceeded, "it did not end in time");
}

// ---------------------------------------------------------------------------------- redis-benchmark

/// Seconds for one SET and one GET, as redis-benchmark sees it.
struct benchmark_times {
  double set = 0;
  double get = 0;
};

/// Eight connections that wait for each reply: in one long pipeline of values it gets a twentieth of that.
result<benchmark_times> run_redis_benchmark(const std::string& program, const redis::server_url& url,
                                            const std::string& output, std::size_t count) {
  const auto& address = url.servers.front();
  child_process::setup how;
  // The shell only opens the file, which is its $0.
  how.command = {"/bin/sh", "-c", "exec \"$@\" > \"$0\"", output, program};
  if (address.path.empty()) {
    how.command.insert(how.command.end(), {"-h", address.place.host, "-p", std::to_string(address.place.port)});
  } else {
    how.command.insert(how.command.end(), {"-s", address.path});
  }
  how.command.insert(how.command.end(),
                     {"--dbnum", std::to_string(url.database), "-t", "set,get", "-d", std::to_string(compared_block),
                      "-c", "8", "-n", std::to_string(4 * count), "--csv"});
  how.die_with_parent = true;
  auto process = child_process::start(how);
  if (!process) return std::unexpected(process.error());
  if (auto ended = wait_for_end(*process, 60s); !ended) return std::unexpected(ended.error().in("redis-benchmark"));
  benchmark_times times;
  std::ifstream file(output);
  for (std::string line; std::getline(file, line);) {
    for (const auto& [name, into] : {std::pair{"\"SET\",\"", &times.set}, std::pair{"\"GET\",\"", &times.get}}) {
      if (!line.starts_with(name)) continue;
      const double rate = std::strtod(line.c_str() + std::strlen(name), nullptr);
      if (rate > 0) *into = 1 / rate;
    }
  }
  if (times.set > 0 && times.get > 0) return times;
  return fail(error_code::malformed, "redis-benchmark's report makes no sense: " + output);
}

// -------------------------------------------------------------------------------------------- cases

/// Where the bench runs, and what both sides call their blocks there.
struct server_ends {
  const redis::server_url& url;
  tier_side& ours;
  bare_side& bare;
  instance_identity identity{};  ///< chance: nobody else's
  std::uint64_t used = 0;        ///< names given out

  std::vector<block_name> new_names(std::size_t count) {
    const key_list keys(identity.spread(), used, count);
    used += count;
    std::vector<block_name> names;
    for (std::size_t i = 0; i < count; ++i) {
      names.push_back({.identity = identity, .group = 0, .full = full_key(keys.all()[i])});
    }
    return names;
  }

  /// As long as the backend's keys of as many names.
  [[nodiscard]] std::vector<std::string> bare_keys(std::size_t count) const {
    std::vector<std::string> keys;
    keys.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      keys.push_back(fmt::format("{}:{}:{:016x}:{:032x}", url.prefix, identity_text(identity), 0, i));
    }
    return keys;
  }

  result<void> forget(const std::vector<block_name>& names) {
    std::vector<block_key> keys;
    keys.reserve(names.size());
    for (const auto& name : names) keys.push_back(name.key());
    return ours.drop(identity, std::move(keys));
  }
};

std::vector<item> items_of(const std::vector<block_name>& names, memory_pieces& pieces, std::uint64_t bytes) {
  std::vector<item> items;
  for (std::size_t i = 0; i < names.size(); ++i) {
    items.push_back({.token = i, .name = names[i], .memory = {pieces.piece(i), bytes}});
  }
  return items;
}

/// Adds how long `work` took, for each of `count`.
template <class Work>
result<void> timed(samples& into, std::size_t count, Work&& work) {
  const stopwatch time;
  if (auto ok = work(); !ok) return ok;
  into.add(time.seconds() / static_cast<double>(count));
  return {};
}

struct moved_samples {
  samples put;
  samples get;
};

/// Batches of `count` blocks put, got back, compared and removed, by either side.
class moves {
 public:
  moves(server_ends& at, std::uint64_t block, std::size_t count)
      : at_(at), block_(block), count_(count), source_(count, block), target_(count, block) {}

  result<void> ours() {
    const auto names = at_.new_names(count_);
    auto puts = items_of(names, source_, block_);
    auto gets = items_of(names, target_, block_);
    std::memset(target_.piece(0), 0, count_ * block_);
    if (auto ok = timed(figure.put, count_, [&] { return at_.ours.put(std::move(puts)); }); !ok) return ok;
    if (auto ok = timed(figure.get, count_, [&] { return at_.ours.get(std::move(gets)); }); !ok) return ok;
    if (std::memcmp(source_.piece(0), target_.piece(0), count_ * block_) != 0) {
      return fail(error_code::internal, "blocks came back with other bytes than were put");
    }
    return at_.forget(names);
  }

  result<void> bare() {
    const auto keys = at_.bare_keys(count_);
    if (auto ok = timed(limit.put, count_, [&] { return at_.bare.put(keys, source_, block_); }); !ok) return ok;
    if (auto ok = timed(limit.get, count_, [&] { return at_.bare.get(keys); }); !ok) return ok;
    return at_.bare.remove(keys);
  }

  moved_samples figure;
  moved_samples limit;

 private:
  server_ends& at_;
  std::uint64_t block_;
  std::size_t count_;
  memory_pieces source_;
  memory_pieces target_;
};

/// What alternates with the two sides where redis-benchmark is installed.
struct beside {
  std::optional<std::string> program;
  std::string output;
};

result<void> measure_moves(server_ends& at, std::uint64_t block, std::size_t count, unsigned rounds,
                           const beside& other, report& out) {
  moves both(at, block, count);
  moved_samples benchmark;
  const bool compares = block == compared_block && other.program;
  // Round 0 only warms up: the server takes its memory from the system.
  for (unsigned round = 0; round <= rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    if (round == 1) both.figure = both.limit = {};
    for (const bool first : {true, false}) {
      if (auto ok = first == (round % 2 == 0) ? both.ours() : both.bare(); !ok) return ok;
    }
    if (!compares || round == 0) continue;
    const auto times = run_redis_benchmark(*other.program, at.url, other.output, count);
    if (!times) return std::unexpected(times.error());
    benchmark.put.add(times->set);
    benchmark.get.add(times->get);
  }
  const auto size = block >= MiB ? fmt::format("{} MiB", block / MiB) : fmt::format("{} KiB", block / KiB);
  const double amount = static_cast<double>(block) / static_cast<double>(GiB);
  const auto add = [&](const std::string& name, const samples& mine, const samples& limit, bound promised) {
    out.add(rate_figure("remote", name, mine, limit, amount, "GiB/s", promised));
  };
  const bound promise{bound::kind::ratio_at_least, 0.90};
  add(fmt::format("put {} x {}", size, count), both.figure.put, both.limit.put, promise);
  add(fmt::format("get {} x {}", size, count), both.figure.get, both.limit.get, promise);
  if (!compares) return {};
  add(fmt::format("put {} x {}, redis-benchmark's SET", size, count), both.figure.put, benchmark.put, {});
  add(fmt::format("get {} x {}, redis-benchmark's GET", size, count), both.figure.get, benchmark.get, {});
  return {};
}

/// Half of the keys are there, the first ones.
result<void> measure_locate(server_ends& at, unsigned rounds, report& out) {
  memory_pieces values(held_keys, small_value);
  const auto names = at.new_names(asked_keys);
  const std::vector<block_name> held(names.begin(), names.begin() + held_keys);
  const auto keys = at.bare_keys(asked_keys);
  if (auto ok = at.ours.put(items_of(held, values, small_value)); !ok) return ok;
  if (auto ok = at.bare.put(std::span(keys).first(held_keys), values, small_value); !ok) return ok;
  samples figure;
  samples limit;
  const auto ours = [&]() -> result<void> {
    auto question = names;
    std::optional<remote::presence> found;
    auto ok = timed(figure, 1, [&]() -> result<void> {
      auto answer = at.ours.locate(std::move(question));
      if (!answer) return std::unexpected(answer.error());
      found = std::move(*answer);
      return {};
    });
    if (!ok) return ok;
    const auto there = static_cast<std::size_t>(std::ranges::count(found->held, true));
    return found->is_complete ? check_all(there, held_keys)
                              : fail(error_code::deadline_exceeded, "the Redis server did not say all that it holds");
  };
  for (unsigned round = 0; round <= rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    if (round == 1) figure = limit = {};
    for (const bool first : {true, false}) {
      auto ok = first == (round % 2 == 0) ? ours() : timed(limit, 1, [&] { return at.bare.exists(keys); });
      if (!ok) return ok;
    }
  }
  out.add(time_figure("remote", fmt::format("locate {} keys", asked_keys), figure, limit, 1e6, "us",
                      {bound::kind::ratio_at_most, 2}));
  if (auto ok = at.bare.remove(keys); !ok) return ok;
  return at.forget(held);
}

result<redis::server_url> server_of(const std::string& text) {
  auto url = redis::parse_server_url(text);
  if (!url) return url;
  if (url->servers.size() != 1 || !url->user.empty()) {
    return fail(error_code::invalid_argument, "--url: this bench takes one server, without a user");
  }
  if (url->tls) return fail(error_code::unsupported, "--url: the bare loop beside the backend speaks no TLS");
  return url;
}

instance_identity any_identity() {
  std::random_device chance;
  const std::array<unsigned, 2> number{chance(), chance()};
  return identity_of_bytes(std::as_bytes(std::span(number)));
}

}  // namespace

result<void> run(const options& options, report& out) {
  auto directory = scratch_directory::make(std::filesystem::temp_directory_path().native());
  if (!directory) return std::unexpected(directory.error());
  std::optional<private_server> server;
  if (options.url.empty()) {
    auto started = private_server::start(*directory);
    if (!started) return std::unexpected(started.error());
    server.emplace(std::move(*started));
  }
  const auto url = server_of(server ? server->url() : options.url);
  if (!url) return std::unexpected(url.error());
  auto bare = bare_side::connect(*url);
  if (!bare) return std::unexpected(bare.error());
  auto ours = tier_side::open(*url, *directory / "state");
  if (!ours) return std::unexpected(ours.error());

  const beside other{.program = find_program("redis-benchmark"), .output = *directory / "benchmark.csv"};
  if (!other.program) out.say_below("redis-benchmark: not measured, it is not installed (package redis-tools)\n");
  server_ends at{.url = *url, .ours = **ours, .bare = *bare, .identity = any_identity()};
  const unsigned rounds = options.rounds != 0 ? options.rounds : options.quick ? 1 : usual_rounds;
  for (const auto& [block, count] : {std::pair{compared_block, std::size_t{64}}, std::pair{2 * MiB, std::size_t{32}}}) {
    if (auto ok = measure_moves(at, block, options.quick ? 2 : count, rounds, other, out); !ok) return ok;
  }
  if (auto ok = measure_locate(at, locates_a_round * rounds, out); !ok) return ok;
  // What is left: epoch and removal stamp of the instance, and redis-benchmark's only key.
  const std::array<std::string, 3> left{fmt::format("{}:{}:epoch", url->prefix, identity_text(at.identity)),
                                        fmt::format("{}:{}:removals", url->prefix, identity_text(at.identity)),
                                        "key:__rand_int__"};
  return bare->remove(std::span(left).first(other.program ? 3 : 2));
}

}  // namespace cenote::bench::remote_bench
