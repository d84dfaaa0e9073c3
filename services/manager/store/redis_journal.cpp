#include "services/manager/store/redis_journal.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <unordered_set>

#include "core/calendar_clock.hpp"
#include "transport/redis/command_text.hpp"
#include "transport/redis/reply_errors.hpp"

namespace cenote::manager {

namespace {

using redis::add_argument;
using redis::begin_command;
using redis::server_reply;
using redis::wire_command;

constexpr std::size_t most_page_bytes = std::size_t{1} << 30U;
constexpr std::size_t usual_page_bytes = std::size_t{2} << 20U;
constexpr std::size_t first_page_rows = 8;  ///< rows may be megabytes
constexpr std::size_t most_page_rows = 4096;
constexpr std::string_view no_script = "NOSCRIPT";  ///< begins the reply of a server that was started again

struct kind_key {
  row_kind kind;
  std::string_view name;
};
/// In the order of the scripts' keys, behind the epoch.
constexpr auto kind_keys = std::to_array<kind_key>(
    {{row_kind::extent, "extents"}, {row_kind::mask, "masks"}, {row_kind::registry, "registry"}});
constexpr std::string_view key_count = "4";

/// Nothing for a name of no kind.
std::optional<std::size_t> place_of(std::string_view row) noexcept {
  const auto found = std::ranges::find_if(
      kind_keys, [&](const kind_key& each) { return row.starts_with(static_cast<char>(each.kind)); });
  if (found == kind_keys.end()) return std::nullopt;
  return static_cast<std::size_t>(found - kind_keys.begin());
}

// ARGV: the number that the epoch must exceed. Its text: the version of the layout, the epoch, batches written in it.
constexpr std::string_view epoch_script = R"(
for i = 1, #KEYS do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= (i == 1 and 'string' or 'hash') then
    return 'OTHER ' .. KEYS[i] .. ' is a ' .. kind
  end
end
local highest = tonumber(ARGV[1])
local text = redis.call('GET', KEYS[1])
if text then
  local number = tonumber(string.match(text, '^1:(%d%d?%d?%d?%d?%d?%d?%d?%d?%d?):%d+$'))
  if not number then return 'OTHER ' .. KEYS[1] .. ' is no epoch of this version' end
  if number > highest then highest = number end
end
if highest >= 4294967295 then return 'LAST' end
text = string.format('1:%.0f:0', highest + 1)
redis.call('SET', KEYS[1], text)
return text
)";

// ARGV: the epoch's text, its text afterwards; a digit for each row, which is its key's number, or four more where the
// row goes; then names and values. Nothing is written before all that can fail was looked at: the server does not undo
// half a script.
constexpr std::string_view write_script = R"(
local held = redis.call('GET', KEYS[1])
if held ~= ARGV[1] then return 'REVOKED ' .. (held or '') end
for i = 2, #KEYS do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= 'hash' then return 'OTHER ' .. KEYS[i] .. ' is a ' .. kind end
end
local at = 4
for i = 1, #ARGV[3] do
  local key = string.byte(ARGV[3], i) - 48
  if key <= 4 then
    redis.call('HSET', KEYS[key], ARGV[at], ARGV[at + 1])
    at = at + 2
  else
    redis.call('HDEL', KEYS[key - 4], ARGV[at])
    at = at + 1
  end
end
redis.call('SET', KEYS[1], ARGV[2])
return 'OK'
)";

/// The error that a script returns instead of a success.
std::unexpected<error> refusal_of(std::string_view text) {
  constexpr std::string_view other = "OTHER ";
  if (text.starts_with("REVOKED")) {
    return fail(error_code::revoked,
                "the store has another epoch: another manager writes there, or an older copy has taken its place");
  }
  if (text == "LAST") return fail(error_code::limit_exceeded, "the journal has had its last epoch");
  if (text.starts_with(other)) {
    return fail(error_code::layout_mismatch, "the store holds something else: " +
                                                 std::string(text.substr(other.size())) + "; name another manager.id");
  }
  return fail(error_code::system, "a reply that no script gives: " + redis::explained(text));
}

/// An error that the server replies. A full one gets advice of its own: a journal must not be evicted.
error server_error(std::string_view reply) {
  if (reply.find("OOM ") == std::string_view::npos) return {error_code::system, redis::explained(reply)};
  return {error_code::system,
          "OOM: the store has reached its maxmemory: raise it, and leave maxmemory-policy noeviction"};
}

std::uint32_t unix_seconds_now() noexcept {
  return static_cast<std::uint32_t>(calendar_ns() / 1'000'000'000);
}

}  // namespace

/// Where a reading of rows has come to.
struct redis_journal::row_cursor {
  std::string cursor = "0";
  std::size_t rows = first_page_rows;     ///< that are asked for
  std::unordered_set<std::string> names;  ///< HSCAN may give a row twice when its table is made anew

  /// Asks for so many rows as make a page of the usual size.
  void fit(std::size_t count, std::size_t bytes) {
    const std::size_t usual = count == 0 ? most_page_rows : usual_page_bytes * count / std::max<std::size_t>(bytes, 1);
    rows = std::clamp<std::size_t>(usual, 1, std::min(2 * rows, most_page_rows));
  }
};

result<std::unique_ptr<redis_journal>> redis_journal::make(redis_journal_options options) {
  auto client =
      redis::waiting_client::make(options.access, {.most_reply_bytes = most_page_bytes, .stop = options.stop});
  if (!client) return std::unexpected(client.error());
  return std::unique_ptr<redis_journal>(new redis_journal(std::move(options), std::move(*client)));
}

void redis_journal::add_keys(std::string& command) const {
  add_argument(command, key_count);
  add_argument(command, key_of("epoch"));
  for (const kind_key& each : kind_keys) add_argument(command, key_of(each.name));
}

std::string redis_journal::script_command(std::string_view hash, std::size_t arguments) const {
  std::string command;
  begin_command(command, 3 + 1 + kind_keys.size() + arguments);
  add_argument(command, hash.empty() ? "EVAL" : "EVALSHA");
  add_argument(command, hash.empty() ? write_script : hash);
  add_keys(command);
  return command;
}

result<std::vector<std::string>> redis_journal::ask(std::span<const std::string> commands) {
  std::vector<std::string> texts;
  std::optional<error> refusal;
  const auto done = client_.run(commands, redis::present_time() + options_.timeout,
                                [&](std::size_t /*index*/, const server_reply& reply) {
                                  if (reply.kind == server_reply::type::failure && !refusal) {
                                    refusal = server_error(reply.text);
                                  }
                                  texts.assign(reply.list.begin(), reply.list.end());
                                  if (reply.kind != server_reply::type::list) texts.assign(1, std::string(reply.text));
                                });
  if (!done) return std::unexpected(done.error());
  if (refusal) return std::unexpected(*refusal);
  return texts;
}

result<std::uint32_t> redis_journal::raise_epoch() {
  epoch_ = 0;
  const auto loaded = ask(std::array{wire_command({"SCRIPT", "LOAD", write_script})});
  if (!loaded) return std::unexpected(loaded.error());
  const std::uint32_t least = std::max(*options_.former_epoch, unix_seconds_now());
  std::string command;
  begin_command(command, 3 + 1 + kind_keys.size() + 1);
  add_argument(command, "EVAL");
  add_argument(command, epoch_script);
  add_keys(command);
  add_argument(command, std::to_string(least));
  const auto raised = ask({&command, 1});
  if (!raised) return std::unexpected(raised.error());
  const std::string& text = raised->front();
  std::uint32_t epoch = 0;
  if (!text.starts_with("1:")) return refusal_of(text);
  const auto [end, code] = std::from_chars(text.data() + 2, text.data() + text.size(), epoch);
  if (code != std::errc() || std::string_view(end) != ":0" || epoch <= least) return refusal_of(text);
  *options_.former_epoch = epoch;
  epoch_ = epoch;
  batches_ = 0;
  script_hash_ = loaded->front();
  return epoch;
}

std::vector<std::span<const journal_row>> redis_journal::pieces_of(std::span<const journal_row> changes) const {
  std::vector<std::span<const journal_row>> pieces;
  std::size_t first = 0, bytes = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const std::size_t row = changes[i].bytes();
    if (i > first && (i - first >= options_.piece_rows || bytes + row > options_.piece_bytes)) {
      pieces.push_back(changes.subspan(first, i - first));
      first = i;
      bytes = 0;
    }
    bytes += row;
  }
  pieces.push_back(changes.subspan(first));
  return pieces;
}

std::string redis_journal::epoch_text(std::uint64_t batches) const {
  return "1:" + std::to_string(epoch_) + ":" + std::to_string(batches);
}

std::string redis_journal::piece_command(std::span<const journal_row> piece, std::string_view hash,
                                         std::uint64_t next) const {
  constexpr std::size_t first_key = 2;
  std::string marks;
  std::size_t values = 0;
  for (const journal_row& row : piece) {
    const std::size_t key = first_key + *place_of(row.name);
    marks += static_cast<char>('0' + (row.value ? key : key + 4));
    if (row.value) ++values;
  }
  std::string command = script_command(hash, 3 + piece.size() + values);
  add_argument(command, epoch_text(batches_));
  add_argument(command, epoch_text(next));
  add_argument(command, marks);
  for (const journal_row& row : piece) {
    add_argument(command, std::string_view(row.name).substr(1));
    if (row.value) add_argument(command, *row.value);
  }
  return command;
}

result<> redis_journal::write(std::span<const journal_row> changes) {
  if (changes.empty()) return {};
  if (epoch_ == 0) return fail(error_code::revoked, "no epoch was begun");
  for (const journal_row& row : changes) {
    if (!place_of(row.name)) return fail(error_code::invalid_argument, "a row of no kind");
  }
  const auto pieces = pieces_of(changes);
  auto written = pieces.size() == 1 ? write_piece(pieces.front()) : write_pieces(pieces);
  ++batches_;
  if (!written) epoch_ = 0;
  return written;
}

result<std::string> redis_journal::run_piece(std::span<const journal_row> piece, std::string_view hash,
                                             redis::steady_time deadline) {
  const std::string command = piece_command(piece, hash, batches_ + 1);
  std::string text;
  bool is_failure = false;
  auto done = client_.run({&command, 1}, deadline, [&](std::size_t /*index*/, const server_reply& reply) {
    text = reply.text;
    is_failure = reply.kind == server_reply::type::failure;
  });
  if (!done) return std::unexpected(done.error());
  if (is_failure && !text.starts_with(no_script)) return std::unexpected(server_error(text));
  return text;
}

result<> redis_journal::write_piece(std::span<const journal_row> piece) {
  const auto deadline = redis::present_time() + options_.timeout;
  auto text = run_piece(piece, script_hash_, deadline);
  // A connection that was cut: the number of the batch shows whether it was written, so that it may be sent again.
  if (!text && !client_.is_connected() && text.error().code() != error_code::deadline_exceeded) {
    text = run_piece(piece, script_hash_, deadline);
  }
  if (text && text->starts_with(no_script)) text = run_piece(piece, {}, deadline);  // its text loads it
  if (!text) return std::unexpected(text.error());
  const bool is_written = *text == "OK" || *text == "REVOKED " + epoch_text(batches_ + 1);
  return is_written ? result<>() : refusal_of(*text);
}

/// All or none: the server runs a transaction without anything in between, so each of its scripts finds the same epoch,
/// which the last one changes.
result<> redis_journal::write_pieces(std::span<const std::span<const journal_row>> pieces) {
  std::vector<std::string> commands{wire_command({"MULTI"})};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    commands.push_back(piece_command(pieces[i], {}, i + 1 < pieces.size() ? batches_ : batches_ + 1));
  }
  commands.push_back(wire_command({"EXEC"}));
  const auto replies = ask(commands);
  if (!replies) return std::unexpected(replies.error());
  if (replies->size() != pieces.size()) return fail(error_code::system, "a transaction without its replies");
  for (const std::string& text : *replies) {
    if (text != "OK") return refusal_of(text);
  }
  return {};
}

result<> redis_journal::read(row_kind kind, const row_visitor& visit) {
  row_cursor next;
  do {
    if (auto done = read_page(next, kind, visit); !done) return done;
  } while (next.cursor != "0");
  return {};
}

result<> redis_journal::read_page(row_cursor& next, row_kind kind, const row_visitor& visit) {
  const char first = static_cast<char>(kind);
  const std::string key = key_of(kind_keys[*place_of({&first, 1})].name);
  const std::array commands{wire_command({"GET", key_of("epoch")}),
                            wire_command({"HSCAN", key, next.cursor, "COUNT", std::to_string(next.rows)})};
  std::optional<error> refusal;
  const auto take = [&](std::size_t index, const server_reply& reply) {
    if (refusal) return;
    if (reply.kind == server_reply::type::failure) {
      const bool is_other = reply.text.starts_with("WRONGTYPE");
      refusal = is_other ? refusal_of("OTHER " + key + " is no hash").error() : server_error(reply.text);
    } else if (index == 0) {
      if (epoch_ != 0 && reply.text != epoch_text(batches_)) refusal = refusal_of("REVOKED").error();
    } else if (reply.list.size() % 2 != 1) {
      refusal = refusal_of("a page without a cursor").error();
    } else {
      next.cursor = reply.list.front();
      std::size_t bytes = 0;
      for (std::size_t i = 1; i < reply.list.size(); i += 2) {
        std::string name = first + std::string(reply.list[i]);
        bytes += name.size() + reply.list[i + 1].size();
        const auto [row, is_new] = next.names.insert(std::move(name));
        if (is_new) visit(*row, reply.list[i + 1]);
      }
      next.fit(reply.list.size() / 2, bytes);
    }
  };
  if (auto done = client_.run(commands, redis::present_time() + options_.timeout, take); !done) return done;
  return refusal ? result<>(std::unexpected(*refusal)) : result<>();
}

}  // namespace cenote::manager
