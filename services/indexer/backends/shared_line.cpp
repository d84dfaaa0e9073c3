#include "services/indexer/backends/shared_line.hpp"

#include <algorithm>
#include <utility>

#include "config/logging.hpp"
#include "core/random_number.hpp"
#include "services/indexer/backends/index_commands.hpp"
#include "services/indexer/backends/pod_entry.hpp"
#include "transport/redis/command_text.hpp"
#include "transport/redis/reply_errors.hpp"

namespace cenote::indexer {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_commands = 2048;                          // of a pipeline
constexpr std::size_t most_command_bytes = std::size_t{256} << 10U;  // of it, beyond which it is sent
constexpr std::size_t most_block_run = 1024;                         // blocks of one SADD
constexpr std::size_t most_known_sizes = 4096;
constexpr auto pipeline_limit = 2s;
constexpr auto first_back_off = 50ms;
constexpr auto last_back_off = 1000ms;
constexpr auto look_every = 500ms;

/// Whether a refusal is about the command alone, a key of another type for instance; others are the server's state.
bool is_of_command(std::string_view refusal) {
  const bool is_own = refusal.starts_with("WRONGTYPE") || refusal.starts_with("ERR ");
  return is_own && redis::meaning_of(refusal) != redis::reply_failure::full && !redis::is_of_cluster(refusal);
}

}  // namespace

result<std::unique_ptr<shared_line>> shared_line::make(redis::server_access access, shared_facts& facts,
                                                       shared_counters& counters) {
  auto client = redis::waiting_client::make(std::move(access));
  if (!client) return std::unexpected(client.error());
  return std::unique_ptr<shared_line>(new shared_line(std::move(*client), facts, counters));
}

void shared_line::add(std::string_view pod, std::string_view field, std::span<const std::uint64_t> keys,
                      std::span<const std::uint64_t> hashes) {
  for (std::size_t position = 0; !keys.empty();) {
    const std::size_t some = std::min(keys.size(), most_block_run);
    const std::size_t named = std::min(hashes.size(), some);
    shared_commands::add_blocks(commands_, pod, field, keys.first(some), hashes.first(named), position);
    position += some;
    keys = keys.subspan(some);
    hashes = hashes.subspan(named);
    flush_if_long();
  }
}

void shared_line::remove(std::string_view pod, std::string_view field, std::span<const std::uint64_t> hashes) {
  shared_commands::remove_blocks(commands_, pod, field, hashes);
  flush_if_long();
}

void shared_line::add_size(std::string_view model, std::uint32_t block_tokens) {
  facts_.add_size(model, block_tokens);
  if (sizes_.size() >= most_known_sizes) sizes_.clear();
  if (!sizes_.emplace(model, block_tokens).second) return;
  commands_.push_back(shared_commands::add_size(model, block_tokens));
}

std::optional<std::uint64_t> shared_line::find(std::uint64_t hash) {
  flush();
  const std::string command = shared_commands::find_block(hash);
  const auto replies = carry_out({&command, 1});
  if (!replies || replies->front().empty()) return std::nullopt;
  return shared_keys::block_key_in(replies->front().front());
}

std::vector<std::uint64_t> shared_line::find_all(std::uint64_t hash) {
  flush();
  const std::string command = shared_commands::find_blocks(hash);
  const auto replies = carry_out({&command, 1});
  std::vector<std::uint64_t> keys;
  if (!replies) return keys;
  for (const std::string& text : replies->front()) {
    if (const auto key = shared_keys::block_key_in(text)) keys.push_back(*key);
  }
  return keys;
}

std::optional<std::string> shared_line::replace(std::string_view key, std::string_view text) {
  flush();
  const std::string command = shared_commands::replace(key, text);
  auto replies = carry_out({&command, 1});
  if (!replies || replies->front().empty()) return std::nullopt;
  return std::move(replies->front().front());
}

// SSCAN gives each member that is there all the while; those that the script takes meanwhile were given.
void shared_line::clear(std::string_view pod, std::string_view tier, clear_reach reach) {
  flush();
  const std::string begin = field_begin(pod, tier);
  bool has_own = false;
  for (std::string cursor = "0";;) {
    const std::string command = shared_commands::scan_pod(pod, cursor);
    auto replies = carry_out({&command, 1});
    if (!replies || replies->front().empty()) return;
    cursor = std::move(replies->front().front());
    has_own = has_own || replies->front().size() > 1;
    if (!clear_page(pod, begin, replies->front())) return;
    if (cursor == "0") break;
  }
  if (has_own || reach == clear_reach::own_keys) return;
  if (scanned_.size() >= most_known_sizes) scanned_.clear();
  const bool is_first = scanned_.emplace(pod).second;
  if (!is_first && reach == clear_reach::all_keys_once) return;
  for (std::string cursor = "0";;) {
    const std::string command = shared_commands::scan_all(cursor);
    auto replies = carry_out({&command, 1});
    if (!replies || replies->front().empty()) return;
    cursor = std::move(replies->front().front());
    if (!clear_page(pod, begin, replies->front())) return;
    if (cursor == "0") break;
  }
}

/// The keys of blocks on a page, whose first text is a cursor. False: the line is stopped.
bool shared_line::clear_page(std::string_view pod, std::string_view begin, texts& page) {
  page.erase(page.begin());
  std::erase_if(page, [](const std::string& key) { return !shared_keys::block_key_in(key); });
  if (page.empty()) return true;
  const std::string command = shared_commands::clear_blocks(pod, begin, page);
  return carry_out({&command, 1}).has_value();
}

void shared_line::flush_if_long() {
  for (; counted_ < commands_.size(); ++counted_) command_bytes_ += commands_[counted_].size();
  if (commands_.size() >= most_commands || command_bytes_ >= most_command_bytes) flush();
}

void shared_line::flush() {
  if (commands_.empty()) return;
  (void)carry_out(commands_);
  commands_.clear();
  counted_ = command_bytes_ = 0;
}

void shared_line::look() {
  if (redis::present_time() < next_look_) return;
  const std::string command = redis::wire_command({"PING"});
  (void)carry_out({&command, 1});
}

std::optional<std::vector<shared_line::texts>> shared_line::carry_out(std::span<const std::string> commands) {
  while (!is_stopping_) {
    auto replies = attempt(commands);
    if (replies) {
      back_off_ = 0ms;
      counters_.commands += commands.size();
      if (!counters_.is_serving.exchange(true)) log_info(logger("indexer"), "the shared index is reached");
      return std::move(*replies);
    }
    ++counters_.failures;
    if (counters_.is_serving.exchange(false) || back_off_ == 0ms) {
      log_warn(logger("indexer"), "the shared index is away: scores are empty until it is back",
               {{"reason", replies.error().message()}});
    }
    back_off_ =
        std::clamp(2 * back_off_, std::chrono::milliseconds(first_back_off), std::chrono::milliseconds(last_back_off));
    pause(back_off_);
  }
  return std::nullopt;
}

result<std::vector<shared_line::texts>> shared_line::attempt(std::span<const std::string> commands) {
  std::vector<texts> replies(commands.size());
  std::optional<error> refusal;
  const auto deadline = redis::present_time() + pipeline_limit;
  if (auto greeted = greet_data(deadline); !greeted) return std::unexpected(greeted.error());
  auto done = client_.run(commands, deadline, [&](std::size_t index, const redis::server_reply& reply) {
    using type = redis::server_reply::type;
    if (reply.kind == type::failure) {
      ++counters_.refused;
      if (!is_of_command(reply.text) && !refusal) {
        refusal = error(error_code::system, redis::explained(reply.text));
      }
    } else if (reply.kind == type::list) {
      replies[index].assign(reply.list.begin(), reply.list.end());
    } else if (reply.kind == type::text) {
      replies[index].emplace_back(reply.text);
    }
  });
  if (!done) return std::unexpected(done.error());
  if (refusal) return std::unexpected(*refusal);
  return replies;
}

/// Looks twice a second, and at each new connection, whether the server has the data that it had.
result<void> shared_line::greet_data(redis::steady_time deadline) {
  const bool is_known = client_.is_connected() && greeted_ == client_.connections();
  if (is_known && redis::present_time() < next_look_) return {};
  const std::string command = shared_commands::settle(shared_keys::data_set_key, std::to_string(random_number()));
  std::string present;
  std::optional<error> refusal;
  auto done = client_.run({&command, 1}, deadline, [&](std::size_t, const redis::server_reply& reply) {
    if (reply.kind == redis::server_reply::type::failure) {
      refusal = error(error_code::system, redis::explained(reply.text));
    }
    present = reply.text;
  });
  if (!done) return done;
  if (refusal) return std::unexpected(*refusal);
  greeted_ = client_.connections();
  counters_.connections = greeted_;
  if (!data_mark_.empty() && data_mark_ != present) {
    sizes_.clear();
    data_set_.fetch_add(1, std::memory_order_release);
    log_warn(logger("indexer"),
             "the shared index has lost its data, or has older ones; all publishers are asked for their blocks");
  }
  data_mark_ = present;
  next_look_ = redis::present_time() + look_every;
  return {};
}

void shared_line::pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  stop_signal_.wait_for(lock, time, [this] { return is_stopping_.load(); });
}

void shared_line::stop() noexcept {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  stop_signal_.notify_all();
}

}  // namespace cenote::indexer
